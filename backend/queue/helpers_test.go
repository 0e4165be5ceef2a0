package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

const (
	key = "key"
	ttl = 30 * time.Second
)

// process is a process of a test, with its requests counted.
type process struct {
	*queue.Backend
	svc *counted
}

// counted counts the requests of a Service, and those in flight at the same time.
type counted struct {
	*queuetest.Service
	answered func() // called before Acquire returns, if it is set

	mu       sync.Mutex
	inFlight int
	n        counts
}

// counts are numbers of requests.
type counts struct {
	asked, ended int
	late         int // of those that end, with Late set
	mostInFlight int
	doubts       int
	passes       int
}

func (c *counted) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	c.mu.Lock()
	c.n.asked++
	c.inFlight++
	c.n.mostInFlight = max(c.n.mostInFlight, c.inFlight)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.inFlight--
		c.mu.Unlock()
	}()
	answer, err := c.Service.Acquire(ctx, a)
	if c.answered != nil {
		c.answered()
	}
	return answer, err
}

func (c *counted) End(ctx context.Context, ends []queue.End) []queue.Ended {
	c.mu.Lock()
	c.n.ended += len(ends)
	for _, e := range ends {
		if e.Late {
			c.n.late++
		}
	}
	c.mu.Unlock()
	return c.Service.End(ctx, ends)
}

func (c *counted) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	c.mu.Lock()
	c.n.passes++
	c.mu.Unlock()
	return c.Service.Pass(ctx, key, leaves)
}

func (c *counted) Doubt(key string) {
	c.mu.Lock()
	c.n.doubts++
	c.mu.Unlock()
	c.Service.Doubt(key)
}

func (c *counted) counts() counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// start returns a new process of a server that gets events.
func start(t *testing.T, s *queuetest.Server) process {
	svc := &counted{Service: s.Process()}
	p := process{queue.New(svc), svc}
	svc.Start(p)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// stop stops a process as SIGSTOP does.
func (p process) stop() {
	p.svc.SetFaults(queuetest.Faults{LoseRequests: true, LoseEvents: true})
}

var owners struct {
	mu sync.Mutex
	n  int
}

func request(share backend.Share) backend.Request {
	owners.mu.Lock()
	defer owners.mu.Unlock()
	owners.n++
	return backend.Request{Key: key, Owner: fmt.Sprintf("%032x", owners.n), Share: share, TTL: ttl}
}

// lock acquires the key, which must be granted within the limit.
func (p process) lock(t *testing.T, share backend.Share, limit time.Duration) backend.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	g, err := p.Acquire(ctx, request(share))
	if err != nil {
		t.Fatalf("Acquire: want a grant within %v, got %v", limit, err)
	}
	return g
}

// waits begins to acquire the key, and returns when the attempt waits.
func (p process) waits(t *testing.T, ctx context.Context, share backend.Share) <-chan result {
	t.Helper()
	return p.waitsFor(t, ctx, request(share))
}

func (p process) waitsFor(t *testing.T, ctx context.Context, req backend.Request) <-chan result {
	t.Helper()
	waiting, got := make(chan struct{}), make(chan result, 1)
	req.OnWait = func(*backend.LockedError) { close(waiting) }
	go func() {
		begun := time.Now()
		g, err := p.Acquire(ctx, req)
		got <- result{req, g, err, time.Since(begun)}
	}()
	select {
	case <-waiting:
	case r := <-got:
		t.Fatalf("Acquire of a held key: want it to wait, got %v, %v", r.grant, r.err)
	}
	return got
}

// contended returns two processes: a waits for the key that b holds.
func contended(t *testing.T) (a, b process, g backend.Grant, next <-chan result) {
	t.Helper()
	s := queuetest.NewServer()
	a, b = start(t, s), start(t, s)
	g = b.lock(t, backend.Share{}, time.Second)
	return a, b, g, a.waits(t, t.Context(), backend.Share{})
}

type result struct {
	req   backend.Request
	grant backend.Grant
	err   error
	after time.Duration
}

// granted returns the grant of an attempt that waits.
func granted(t *testing.T, got <-chan result, limit time.Duration) backend.Grant {
	t.Helper()
	select {
	case r := <-got:
		if r.err != nil {
			t.Fatalf("Acquire: want a grant, got %v", r.err)
		}
		return r.grant
	case <-time.After(limit):
		t.Fatalf("Acquire: want a grant within %v, there was none", limit)
		return nil
	}
}

func release(t *testing.T, g backend.Grant) {
	t.Helper()
	if err := g.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}
