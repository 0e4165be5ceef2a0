package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// These cases send a request of a holder so that it arrives while its grant expires and a successor takes the
// key. A driver that reads, compares and then writes does so to the successor's key.

// lastCall is a request by a holder about its grant.
type lastCall func(ctx context.Context, g backend.Grant) error

func releaseRacesExpiry(t *T) {
	t.racesExpiry("Release", func(b backend.Backend, req backend.Request, i int) lastCall {
		if i%2 == 1 {
			return func(ctx context.Context, _ backend.Grant) error { return b.Abandon(ctx, req) }
		}
		return func(ctx context.Context, g backend.Grant) error { return g.Release(ctx) }
	})
}

func renewalRacesExpiry(t *T) {
	t.racesExpiry("Renew", func(_ backend.Backend, req backend.Request, _ int) lastCall {
		return func(ctx context.Context, g backend.Grant) error { return g.Renew(ctx, req.TTL) }
	})
}

// racesExpiry lets grants expire while the request that call returns is under way: over a fast network at
// several moments around the expiry, and, if there is a link, over a slow one, where an exchange takes longer
// than any pause of a busy machine.
func (t *T) racesExpiry(what string, call func(b backend.Backend, req backend.Request, i int) lastCall) {
	b, other := t.open(), t.open()
	const atOnce = 8
	for range t.rounds(2, 20) {
		t.together(atOnce, func(i int) {
			// from 40 ms before the expiry to 10 ms after
			t.raceExpiry(what, b, other, -40*time.Millisecond+time.Duration(i)*50*time.Millisecond/(atOnce-1), nil,
				func(req backend.Request) lastCall { return call(b, req, i) })
		})
	}
	if t.h.OpenFaulty == nil || t.failed() {
		return
	}
	const oneWay = 100 * time.Millisecond
	// The request arrives half a delay before the expiry, whether it is the first that the driver sends or the
	// second; what follows on it arrives after.
	t.together(4, func(i int) {
		b, link := t.faultyAsync()
		if b != nil {
			early := oneWay * time.Duration(3+4*(i/2)) / 2
			t.raceExpiry(what+" over a slow link", b, other, -early, func() { link.Delay(oneWay) },
				func(req backend.Request) lastCall { return call(b, req, i) })
		}
	})
}

// together runs f(0) to f(n-1) at the same time.
func (t *T) together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// faultyAsync is faulty for goroutines other than the case's. It returns nil if it failed.
func (t *T) faultyAsync() (backend.Backend, Link) {
	b, link, err := t.h.OpenFaulty(t.ctx)
	if err != nil {
		t.errorf("OpenFaulty: %v", err)
		return nil, nil
	}
	t.later(func(ctx context.Context) { _ = b.Close(ctx) })
	t.later(func(context.Context) { link.Heal() })
	return b, link
}

func (t *T) raceExpiry(what string, b, other backend.Backend, when time.Duration, before func(), call func(backend.Request) lastCall) {
	req := request(t.key("races-expiry"), t.clampTTL(time.Second))
	sent := time.Now()
	g, err := b.TryAcquire(t.ctx, req)
	if err != nil {
		t.errorf("a free key: want TryAcquire to be granted, got %v", err)
		return
	}
	if before != nil {
		before()
	}
	expires := sent.Add(time.Since(sent)/2 + req.TTL)
	taken := make(chan backend.Grant, 1)
	go func() {
		defer close(taken)
		t.idleFor(time.Until(expires.Add(-10 * time.Millisecond)))
		for time.Until(expires) > -req.TTL/2 {
			if next, err := other.TryAcquire(t.ctx, request(req.Key, t.longTTL())); err == nil {
				taken <- next
				return
			}
			t.idleFor(3 * time.Millisecond)
		}
	}()
	t.idleFor(time.Until(expires.Add(when)))
	ctx, cancel := context.WithTimeout(t.ctx, t.slack())
	result := call(req)(ctx, g)
	cancel()
	next, ok := <-taken
	if !ok { // the request was in time to extend, or the service was late to free
		if err := b.Abandon(t.ctx, req); err != nil {
			t.notef("Abandon: %v", err)
		}
		return
	}
	if result == nil && what == "Renew" {
		t.errorf("%s %v from the expiry of its grant: it returned nil, and a successor was granted within half a TTL", what, when)
	}
	if err := next.Renew(t.ctx, t.longTTL()); err != nil {
		t.errorf("%s %v from the expiry of its grant returned %v: want the successor to hold the key afterwards, its Renew returned %v", what, when, result, err)
		return
	}
	if err := next.Release(t.ctx); err != nil {
		t.errorf("Release by the successor: want nil, got %v", err)
	}
}
