package etcdlock

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// renewIfDue sends a keep-alive if none was answered in the last third of the TTL, and
// returns the time until the next call.
func (s *session) renewIfDue() time.Duration {
	ttl := s.ttl()
	if left := time.Until(s.until(ttl / 3)); left > ttl/60 {
		return left // the renewal of a grant has sent one
	}
	ctx, cancel := context.WithTimeout(s.ctx, ttl/4)
	defer cancel()
	if s.refresh(ctx, 0) != nil {
		return ttl / 12
	}
	return ttl / 3
}

// refresh sends a keep-alive, unless one of less than maxAge ago was answered. It
// returns the cause if the session has ended.
func (s *session) refresh(ctx context.Context, maxAge time.Duration) error {
	select {
	case s.renewing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.renewing }()
	if cause, _ := s.ended(); cause != nil {
		return cause
	}
	if time.Until(s.until(maxAge)) > 0 {
		return nil
	}
	sent := time.Now()
	ttl, err := s.b.keepAlive(ctx, s.id, s.ttl()/12)
	if err != nil {
		return err
	}
	if ttl <= 0 {
		s.endAsGone()
		cause, _ := s.ended()
		return cause
	}
	s.extend(sent, ttl)
	return nil
}

// keepAlive makes one round trip and returns the TTL, zero if the servers do not know the
// lease. A server that is cut off may accept the request and not answer: after
// secondAfter keepAlive also asks the next server of the client.
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID, secondAfter time.Duration) (int64, error) {
	var requests sync.WaitGroup
	defer requests.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the streams before Wait
	type answer struct {
		ttl int64
		err error
	}
	answers := make(chan answer, 2)
	request := func() {
		ttl, err := b.keepAliveOnce(ctx, id)
		answers <- answer{ttl, err}
	}
	requests.Go(request)
	timer := time.NewTimer(secondAfter)
	defer timer.Stop()
	for open := 1; ; {
		select {
		case a := <-answers:
			if open--; a.err == nil || open == 0 {
				return a.ttl, a.err
			}
		case <-timer.C:
			open++
			requests.Go(request)
		}
	}
}

// keepAliveOnce asks one server. KeepAliveOnce of the client repeats the request
// without a pause for as long as no server answers.
func (b *Backend) keepAliveOnce(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	stream, err := etcdserverpb.NewLeaseClient(b.client.ActiveConnection()).LeaseKeepAlive(clientv3.WithRequireLeader(ctx), grpc.WaitForReady(true))
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		_, err = stream.Recv() // returns the reason
		return 0, clientv3.ContextError(ctx, err)
	}
	r, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	return r.TTL, nil
}
