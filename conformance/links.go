package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
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
		t.refused(w.c.Mutex(key), "a key that is held, when the link has healed")
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
