package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// These cases send a request of a holder so that it arrives while its grant ends and a successor takes the
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

// needRace is met if the suite can make a grant end at a moment of its choice.
var needRace = need{"loss by TTL or hook OpenFaulty", func(t *T) (Status, string) {
	if t.caps.Loss == backend.LossTTL {
		return "", ""
	}
	return needLink.check(t)
}}

// racesExpiry ends grants while the request that call returns is under way: over a fast network by their expiry, at
// several moments around it, and, if there is a link, over a slow one by an Abandon of another client. There an
// exchange takes longer than a pause of a busy machine.
func (t *T) racesExpiry(what string, call func(b backend.Backend, req backend.Request, i int) lastCall) {
	b, other := t.open(), t.open()
	if t.caps.Loss == backend.LossTTL {
		const atOnce = 8
		for range t.rounds(2, 20) {
			t.together(atOnce, func(i int) {
				// from 40 ms before the expiry to 10 ms after
				t.raceExpiry(what, b, other, -40*time.Millisecond+time.Duration(i)*50*time.Millisecond/(atOnce-1),
					func(req backend.Request) lastCall { return call(b, req, i) })
			})
		}
	}
	if t.h.OpenFaulty == nil || t.failed() {
		return
	}
	t.together(4, func(i int) {
		if b, link := t.faultyAsync(); b != nil {
			t.raceTakeover(what, b, other, link, 1+i/2, func(req backend.Request) lastCall { return call(b, req, i) })
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

func (t *T) raceExpiry(what string, b, other backend.Backend, when time.Duration, call func(backend.Request) lastCall) {
	req := request(t.key("races-expiry"), t.clampTTL(time.Second))
	sent := time.Now()
	g, err := b.TryAcquire(t.ctx, req)
	if err != nil {
		t.errorf("a free key: want TryAcquire to be granted, got %v", err)
		return
	}
	expires := sent.Add(time.Since(sent)/2 + req.TTL)
	type taking struct {
		backend.Grant
		at time.Time // of the reply
	}
	taken := make(chan taking, 1)
	go func() {
		defer close(taken)
		t.idleFor(time.Until(expires.Add(-10 * time.Millisecond)))
		for time.Until(expires) > -req.TTL/2 {
			if next, err := other.TryAcquire(t.ctx, request(req.Key, t.longTTL())); err == nil {
				taken <- taking{next, time.Now()}
				return
			}
			t.idleFor(3 * time.Millisecond)
		}
	}()
	t.idleFor(time.Until(expires.Add(when)))
	ctx, cancel := context.WithTimeout(t.ctx, t.slack())
	called := time.Now()
	result := call(req)(ctx, g)
	cancel()
	next, ok := <-taken
	if !ok { // the request was in time to extend, or the service was late to free
		if err := b.Abandon(t.ctx, req); err != nil {
			t.notef("Abandon: %v", err)
		}
		return
	}
	// A request of the successor that was under way for long may be granted when the renewed grant has expired.
	if after := next.at.Sub(called); result == nil && what == "Renew" && after < req.TTL {
		t.errorf("Renew %v from the expiry of its grant: it returned nil, and a successor was granted %v after the call, with a TTL of %v", when, after, req.TTL)
	}
	t.undisturbed(next.Grant, fmt.Sprintf("%s %v from the expiry of its grant, which returned %v", what, when, result))
}

// raceTakeover lets a successor take the key between two exchanges of the request: after so many, and before the next.
func (t *T) raceTakeover(what string, b, other backend.Backend, link Link, exchanges int, call func(backend.Request) lastCall) {
	const oneWay = 100 * time.Millisecond
	req := request(t.key("races-takeover"), t.longTTL())
	g, err := b.TryAcquire(t.ctx, req)
	if err != nil {
		t.errorf("a free key: want TryAcquire to be granted, got %v", err)
		return
	}
	link.Delay(oneWay)
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.slack())
		defer cancel()
		result <- call(req)(ctx, g)
	}()
	t.idleFor(2 * oneWay * time.Duration(exchanges))
	next, err := t.takeOver(other, req)
	got := <-result
	link.Delay(0)
	if err != nil {
		t.notef("no successor could take the key of an abandoned holder, so nothing was learned over the link: %v", err)
		return
	}
	t.undisturbed(next, fmt.Sprintf("%s over a slow link, during which a successor took the key, and which returned %v", what, got))
}

// takeOver ends the grant of an attempt and takes its key.
func (t *T) takeOver(other backend.Backend, req backend.Request) (next backend.Grant, err error) {
	ways := []func() error{func() error { return other.Abandon(t.ctx, req) }}
	if t.h.DestroyState != nil { // if Abandon by another client does not end the grant
		ways = append(ways, func() error { return t.h.DestroyState(t.ctx, req.Key) })
	}
	for _, end := range ways {
		if err = end(); err == nil {
			next, err = other.TryAcquire(t.ctx, request(req.Key, t.longTTL()))
		}
		if err == nil {
			return next, nil
		}
	}
	return nil, err
}

// undisturbed checks that a successor holds the key after a request of its predecessor.
func (t *T) undisturbed(next backend.Grant, after string) {
	if err := next.Renew(t.ctx, t.longTTL()); err != nil {
		t.errorf("%s: want the successor to hold the key afterwards, its Renew returned %v", after, err)
		return
	}
	if err := next.Release(t.ctx); err != nil {
		t.errorf("Release by the successor: want nil, got %v", err)
	}
}
