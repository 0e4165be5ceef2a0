package queued

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

const (
	requestTime = 2 * time.Second        // for a request, also if its context has no deadline
	noSign      = 100 * time.Millisecond // a request without a reply for less says nothing about the connection
)

// service is a process at the server: a queue.Service and, by listener, a queue.Pusher.
type service struct {
	base string
	http *http.Client
	*listener
}

// Acquire implements queue.Service.
func (s *service) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	sent, results, err := s.do(ctx, operation{
		Kind: acquire, Key: []byte(a.Key), Owner: a.Owner, Metadata: a.Metadata, Share: a.Share, TTL: a.TTL,
		NoQueue: a.Mode == queue.NoQueue,
	})
	answer := results[0].Answer
	answer.Sent = sent
	return answer, err
}

// Renew implements queue.Service.
func (s *service) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	ops := make([]operation, len(holds))
	for i, h := range holds {
		ops[i] = operation{Kind: renew, Key: []byte(h.Key), Owner: h.Owner, TTL: h.TTL, Exactly: h.Exactly}
	}
	sent, results, err := s.do(ctx, ops...)
	renewed := make([]queue.Renewed, len(holds))
	for i, r := range results {
		renewed[i] = queue.Renewed{Sent: sent, Now: r.Now, Pass: r.Pass, Err: err}
		if err == nil && !r.Held {
			renewed[i].Err = backend.ErrLost
		}
	}
	return renewed
}

// End implements queue.Service.
func (s *service) End(ctx context.Context, ends []queue.End) []queue.Ended {
	kinds := map[queue.Kind]string{
		queue.Release: release, queue.Abandon: release, queue.Downgrade: downgrade, queue.Break: breakAny,
	}
	ops := make([]operation, len(ends))
	for i, e := range ends {
		ops[i] = operation{Kind: kinds[e.Kind], Key: []byte(e.Key), Owner: e.Owner, Share: e.Share, Late: e.Late}
	}
	_, results, err := s.do(ctx, ops...)
	ended := make([]queue.Ended, len(ends))
	for i, r := range results {
		ended[i] = queue.Ended{Now: r.Now, Held: r.Held, Holder: r.Broken, Pass: r.Pass, Err: err}
		if r.Invalid != "" {
			ended[i].Err = fmt.Errorf("%w: %s", backend.ErrInvalid, r.Invalid)
		}
	}
	return ended
}

// Pass implements queue.Service.
func (s *service) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	_, results, err := s.do(ctx, operation{Kind: pass, Key: []byte(key), Leaves: leaves})
	return queue.Passed{Now: results[0].Now, Pass: results[0].Pass}, err
}

// Close implements queue.Service.
func (s *service) Close(ctx context.Context) error {
	err := s.stop(ctx)
	s.http.CloseIdleConnections()
	return err
}

// do sends operations in one request. It returns when it was sent, and a result for each, also with an error.
func (s *service) do(ctx context.Context, ops ...operation) (sent time.Time, results []result, err error) {
	none := make([]result, len(ops))
	body, err := json.Marshal(request{s.process, ops})
	if err != nil {
		return sent, none, backend.NotExecuted(err)
	}
	if err := ctx.Err(); err != nil {
		return sent, none, backend.NotExecuted(err)
	}
	within, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	sent = time.Now()
	results, err = s.post(within, body)
	var dial *net.OpError
	switch {
	case err == nil && len(results) == len(ops):
		return sent, results, nil
	case err == nil:
		err = fmt.Errorf("toy server: %d results of %d operations", len(results), len(ops))
	case errors.As(err, &dial) && dial.Op == "dial":
		err = backend.NotExecuted(err)
	case within.Err() != nil && time.Since(sent) >= noSign:
		s.http.CloseIdleConnections() // they may be dead too
	}
	return sent, none, err
}

func (s *service) post(ctx context.Context, body []byte) (results []result, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/do", bytes.NewReader(body))
	if err != nil {
		return nil, backend.NotExecuted(err)
	}
	resp, err := s.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("toy server: %s", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&results); err != nil {
		return nil, fmt.Errorf("toy server: %w", err)
	}
	return results, nil
}
