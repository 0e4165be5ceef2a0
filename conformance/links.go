package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// orphanBound is how long what could not be cleaned up may hold the key.
func (t *T) orphanBound(ttl time.Duration) time.Duration { return ttl + t.slack() }

func (t *T) linkAcquire(contended bool) {
	b, link := t.faulty()
	other := t.client()
	key, ttl := t.key("link"), t.lossTTL()
	w := t.waiterOf(b, lock.WithTTL(ttl))
	t.mustUnlock(t.mustLock(w.c.Mutex(t.key("warm")), "a free key"), "the holder") // connections are open now
	var l *lock.Lease
	if contended {
		l = t.mustLock(other.Mutex(key), "a free key")
	}
	link.BlackholeReplies()
	ctx, cancel := context.WithTimeout(t.ctx, 500*time.Millisecond)
	got := t.end(500*time.Millisecond+cancelPromptly+t.slack(), "a Lock that is executed and not answered", t.lockAsync(ctx, w.c.Mutex(key)))
	cancel()
	if got.err == nil {
		t.fatalf("a Lock that was not answered: want an error, got %s", leaseText(got.lease))
	}
	if !errors.Is(got.err, context.DeadlineExceeded) {
		t.errorf("a Lock that was not answered: want DeadlineExceeded, got %v", got.err)
	}
	link.Heal()
	if l != nil {
		// A connection on which replies were dropped may cost one more request.
		t.eventually(t.slack(), "TryLock of a key that is held, when the link has healed", func() error {
			got, err := w.c.Mutex(key).TryLock(t.ctx)
			switch {
			case err == nil:
				t.fatalf("a key that is held, when the link has healed: want ErrLocked, it was granted %s", leaseText(got))
			case errors.Is(err, lock.ErrLocked):
				return nil
			}
			return err
		})
		t.mustUnlock(l, "the holder")
	}
	t.free(other, key, "after a Lock that was not answered", t.orphanBound(ttl))
	t.mustUnlock(t.granted(t.orphanBound(ttl), "the same client when the link has healed", t.lockRetry(w.c.Mutex(key))).lease, "the same client")
}

func linkRelease(t *T) {
	b, link := t.faulty()
	other := t.client()
	key, ttl := t.key("link"), t.clampTTL(10*time.Second)
	l := t.mustLock(t.clientOf(b, lock.WithTTL(ttl)).Mutex(key), "a free key")
	link.BlackholeReplies()
	done := make(chan error, 1)
	go func() { done <- l.Unlock(t.ctx) }()
	// The release arrives, so a successor may take the key while the retries come in.
	next := t.granted(ttl+t.slack(), "a successor while the release is not answered", t.lockAsync(t.ctx, other.Mutex(key))).lease
	link.Heal()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, lock.ErrUncertain) && !errors.Is(err, lock.ErrLost) {
			t.errorf("Unlock that was executed and not answered: want nil or ErrUncertain, got %v", err)
		}
	case <-time.After(5*time.Second + t.slack()):
		t.fatalf("Unlock that was executed and not answered: want it to return within 5s, it did not")
	}
	t.idleFor(300 * time.Millisecond) // retries may still come in
	if err := next.Check(t.ctx); err != nil {
		t.errorf("the successor after the retried releases: want Check to say it holds, got %v", err)
	}
	t.refused(t.client().Mutex(key), "the successor's key after the retried releases")
	t.mustUnlock(next, "the successor")
}

func linkCancel(t *T) {
	b, link := t.faulty()
	other := t.client()
	key, ttl := t.key("link"), t.lossTTL()
	l := t.mustLock(other.Mutex(key), "a free key")
	ctx, cancel := context.WithCancel(t.ctx)
	got := t.lockWaiting(ctx, t.waiterOf(b, lock.WithTTL(ttl)), key)
	link.BlackholeReplies()
	cancel()
	if g := t.end(cancelPromptly+t.slack(), "a cancelled Lock that is not answered", got); !errors.Is(g.err, context.Canceled) {
		t.errorf("a cancelled Lock that is not answered: want context.Canceled, got %v", g.err)
	}
	t.mustUnlock(l, "the holder")
	t.free(other, key, "after a cancel that was not answered", t.orphanBound(ttl))
	link.Heal()
	t.free(other, key, "when the link has healed", t.orphanBound(ttl))
}

func resetAtEachStep(t *T) {
	b, link := t.faulty()
	cutter, ok := link.(ReplyCutter)
	if !ok {
		t.notRun("the harness's Link is no ReplyCutter")
	}
	other := t.client()
	ttl := t.clampTTL(5 * time.Second)
	c := t.clientOf(b, lock.WithTTL(ttl))
	for n := range t.rounds(8, 24) {
		for _, contended := range []bool{false, true} {
			key := t.key("reset")
			var r room
			var rival chan struct{}
			if contended {
				l := t.mustLock(other.Mutex(key), "a free key")
				rival = make(chan struct{})
				go func() {
					defer close(rival)
					r.visit(func() { t.idleFor(50 * time.Millisecond) })
					if err := l.Unlock(t.ctx); err != nil {
						t.errorf("the rival's Unlock: want nil, got %v", err)
					}
				}()
			}
			cutter.CutAfterReplies(n)
			ctx, cancel := context.WithTimeout(t.ctx, ttl)
			l, err := c.Mutex(key).Lock(ctx)
			if err == nil {
				r.visit(func() { _ = l.Check(ctx) })
				err = l.Unlock(ctx)
			}
			cancel()
			if err != nil {
				t.notef("cut after %d replies: %v", n, err)
			}
			link.Heal()
			if rival != nil {
				<-rival
			}
			if w := r.worst.Load(); w > 1 {
				t.errorf("inside at the same time with a reset after %d replies: want at most 1, were %d", n, w)
			}
			t.free(other, key, fmt.Sprintf("after a reset after %d replies", n), t.orphanBound(ttl))
		}
	}
}

// unanswered is how long the suite waits for a reply that it drops.
const unanswered = 300 * time.Millisecond

func linkUnknownOutcome(t *T) {
	b, link := t.faulty()
	other := t.open()
	key := t.key("link")
	_, warm := t.holdRaw(b, key, t.longTTL()) // connections are open now
	if err := warm.Release(t.ctx); err != nil {
		t.fatalf("Release by the holder: want nil, got %v", err)
	}
	silent := func(what string, call func(ctx context.Context) error) error {
		link.BlackholeReplies()
		ctx, cancel := context.WithTimeout(t.ctx, unanswered)
		defer cancel()
		var err error
		t.within(unanswered+t.slack(), what+" that is not answered", func() { err = call(ctx) })
		if err == nil || errors.Is(err, backend.ErrLost) {
			t.errorf("%s that was not answered: want an error that is no ErrLost, got %v", what, err)
		}
		return err
	}
	certain := func(what string, err error) {
		if err != nil && !backend.OutcomeUnknown(err) {
			t.errorf("%s that was executed and not answered: want an unknown outcome, got an error that says the request was not executed: %v", what, err)
		}
	}
	req := request(key, t.longTTL())
	err := silent("TryAcquire", func(ctx context.Context) error { _, err := b.TryAcquire(ctx, req); return err })
	if next, held := other.TryAcquire(t.ctx, request(key, t.longTTL())); errors.Is(held, backend.ErrLocked) {
		certain("TryAcquire", err)
	} else if held == nil {
		_ = next.Release(t.ctx)
	}
	link.Heal()
	t.eventually(t.slack(), "Abandon when the link has healed", func() error { return b.Abandon(t.ctx, req) })

	var g backend.Grant
	t.eventually(t.slack(), "TryAcquire when the link has healed", func() (err error) {
		g, err = b.TryAcquire(t.ctx, request(key, t.longTTL()))
		return err
	})
	_ = silent("Renew", func(ctx context.Context) error { return g.Renew(ctx, t.longTTL()) })
	link.Heal()
	t.eventually(t.slack(), "Renew when the link has healed", func() error { return g.Renew(t.ctx, t.longTTL()) })

	err = silent("Release", g.Release)
	if next, free := other.TryAcquire(t.ctx, request(key, t.longTTL())); free == nil {
		certain("Release", err)
		_ = next.Release(t.ctx)
	}
	link.Heal()
	t.eventually(t.slack(), "Release when the link has healed", func() error {
		if err := g.Release(t.ctx); !errors.Is(err, backend.ErrLost) {
			return err
		}
		return nil
	})
}

// silentAtEachStep gives calls no deadline, so a driver that limits its exchanges ends them by itself.
func silentAtEachStep(t *T) {
	var all sync.WaitGroup
	for n := range t.rounds(5, 10) {
		b, link := t.faulty()
		silencer, ok := link.(ReplySilencer)
		if !ok {
			t.notRun("the harness's Link is no ReplySilencer")
		}
		other := t.open()
		req := request(t.key("silent"), t.longTTL())
		_, warm := t.holdRaw(b, t.key("warm"), t.longTTL()) // connections are open now
		if err := warm.Release(t.ctx); err != nil {
			t.fatalf("Release by the holder: want nil, got %v", err)
		}
		limited := func(call func(context.Context) error) error {
			ctx, cancel := context.WithCancel(t.ctx)
			defer cancel()
			defer time.AfterFunc(ownLimit, cancel).Stop()
			return call(ctx)
		}
		all.Go(func() {
			silencer.SilenceAfterReplies(n)
			var g backend.Grant
			acquired := limited(func(ctx context.Context) (err error) { g, err = b.TryAcquire(ctx, req); return err })
			var released error
			if acquired == nil {
				released = limited(g.Release)
			}
			next, free := other.TryAcquire(t.ctx, request(req.Key, t.longTTL()))
			switch {
			case acquired != nil && !backend.OutcomeUnknown(acquired) && errors.Is(free, backend.ErrLocked):
				t.errorf("TryAcquire that was executed and of which %d replies arrived: want an unknown outcome, got an error that says it was not executed: %v", n, acquired)
			case released != nil && !backend.OutcomeUnknown(released) && free == nil:
				t.errorf("Release that was executed: want an unknown outcome, got an error that says it was not executed: %v", released)
			}
			if free == nil {
				_ = next.Release(t.ctx)
			}
			link.Heal()
			t.eventually(t.slack(), "Abandon when the link has healed", func() error { return b.Abandon(t.ctx, req) })
		})
	}
	all.Wait()
}

func linkContextError(t *T) {
	b, link := t.faulty()
	held := t.key("held")
	_, g := t.holdRaw(b, held, t.longTTL())
	req := request(t.key("free"), t.longTTL())
	released := make(chan backend.Grant, 2) // each once: the driver may repeat a release by itself
	for _, label := range []string{"released", "released too"} {
		_, g := t.holdRaw(b, t.key(label), t.longTTL())
		released <- g
	}
	calls := map[string]func(context.Context) error{
		"TryAcquire": func(ctx context.Context) error { _, err := b.TryAcquire(ctx, req); return err },
		"Abandon":    func(ctx context.Context) error { return b.Abandon(ctx, req) },
		"Renew":      func(ctx context.Context) error { return g.Renew(ctx, t.longTTL()) },
		"Release":    func(ctx context.Context) error { return (<-released).Release(ctx) },
	}
	if w, ok := b.(backend.Waiter); ok {
		calls["Acquire"] = func(ctx context.Context) error { _, err := w.Acquire(ctx, req); return err }
	}
	for what, call := range calls {
		for _, cancelled := range []bool{false, true} {
			link.Blackhole()
			ctx, cancel := context.WithTimeout(t.ctx, unanswered)
			if cancelled {
				cancel()
				ctx, cancel = context.WithCancel(t.ctx)
				time.AfterFunc(unanswered, cancel)
			}
			var err error
			start := time.Now()
			t.within(unanswered+t.slack(), what+" over a link that drops everything", func() { err = call(ctx) })
			ended := ctx.Err() // nil if the driver gave up earlier
			cancel()
			switch {
			case err == nil && what == "Abandon": // the driver may know that nothing remains
			case err == nil:
				t.errorf("%s over a link that drops everything: want an error, got nil", what)
			case ended != nil && !errors.Is(err, ended):
				t.errorf("%s over a link that drops everything, whose context ended after %v: want an error that matches %v, got %v after %v",
					what, unanswered, ended, err, time.Since(start).Round(time.Millisecond))
			}
			link.Heal()
		}
	}
	t.eventually(t.slack(), "Abandon when the link has healed", func() error { return b.Abandon(t.ctx, req) })
}
