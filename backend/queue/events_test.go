package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// pushed returns an event of a grant that the service made now, and keeps until expires has passed.
func pushed(req backend.Request, expires time.Duration) queue.Grant {
	now := time.Now()
	return queue.Grant{
		Key: req.Key, Owner: req.Owner, Token: 1 << 40, Received: now, TTL: queue.ProvisionalTTL,
		Expires: time.Duration(now.UnixNano()) + expires,
	}
}

// TestEventsOfATry: events about an attempt that did not wait end nothing, although it asks for no notification of a loss.
// They would end what the process does not know.
func TestEventsOfATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, req := start(t, queuetest.NewServer()), request(backend.Share{})
		g, err := p.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		p.Granted(pushed(req, queue.ProvisionalTTL))
		p.Asked(req.Key, req.Owner)
		time.Sleep(time.Second)
		synctest.Wait()
		if n := p.svc.counts().ended; n != 0 {
			t.Errorf("%d attempts were ended, want none", n)
		}
		release(t, g)
	})
}

// TestServiceClockSet: an event is no grant if it says that the grant lasts for longer than it was made for.
func TestServiceClockSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, req := queuetest.NewServer(), request(backend.Share{})
		a, b := start(t, s), start(t, s)
		g := b.lock(t, backend.Share{}, time.Second)
		next := a.waitsFor(t, t.Context(), req)
		a.Granted(pushed(req, time.Hour))
		synctest.Wait()
		select {
		case r := <-next:
			t.Fatalf("a grant for a provisional TTL that ends in an hour: want it asked for, got it with Until in %v", time.Until(r.grant.Until()))
		default:
		}
		release(t, g)
		release(t, granted(t, next, time.Second))
	})
}

// TestLostWhileWaiting: an attempt that waits is not ended by the break of a grant that it did not know, and then asks
// before it accepts a grant.
func TestLostWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, req := queuetest.NewServer(), request(backend.Share{})
		req.OnLost = func(err error) { t.Errorf("OnLost of an attempt that waits: %v", err) }
		a, b := start(t, s), start(t, s)
		g := b.lock(t, backend.Share{}, time.Second)
		next := a.waitsFor(t, t.Context(), req)
		a.Lost(req.Owner)
		a.Granted(pushed(req, queue.ProvisionalTTL)) // that one
		synctest.Wait()
		select {
		case r := <-next:
			t.Fatalf("an attempt that waits, after a break: want it to wait, got %v, %v", r.grant, r.err)
		default:
		}
		release(t, g)
		release(t, granted(t, next, time.Second))
	})
}

// TestBrokenAsAnswered: an answer that was sent before the grant was broken is no grant.
func TestBrokenAsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, g, next := contended(t)
		a.svc.SetFaults(queuetest.Faults{LoseEvents: true})
		release(t, g)
		a.svc.SetFaults(queuetest.Faults{})
		a.svc.answered = func() {
			a.svc.answered = nil
			if h, err := b.Break(t.Context(), key, ""); h == nil || err != nil {
				t.Errorf("Break: want the holder, got %v, %v", h, err)
			}
			synctest.Wait()
		}
		a.Interrupted("")
		g = granted(t, next, time.Second)
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Errorf("Renew of a grant that Acquire returned after a break: %v", err)
		}
		release(t, g)
	})
}

// TestGrantedAfterTheEnd: a grant that is pushed to an attempt whose context has ended is released at once.
func TestGrantedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b := start(t, s), start(t, s)
		g := b.lock(t, backend.Share{}, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		next := a.waits(t, ctx, backend.Share{})
		cancel()
		<-next
		release(t, g)
		release(t, b.lock(t, backend.Share{}, queue.ProvisionalTTL/2))
	})
}

// TestUnansweredThenLost: a request that had no answer is refused after its attempt has lost its grant.
func TestUnansweredThenLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, g, next := contended(t)
		a.svc.SetFaults(queuetest.Faults{LoseReplies: true})
		a.Interrupted("")
		synctest.Wait()
		a.svc.SetFaults(queuetest.Faults{})
		release(t, g)
		granted(t, next, time.Second)
		if h, err := b.Break(t.Context(), key, ""); h == nil || err != nil {
			t.Fatalf("Break: want the holder, got %v, %v", h, err)
		}
		synctest.Wait()
		if n := a.svc.counts().late; n != 1 {
			t.Errorf("requests that refuse late ones, after a loss: want 1, got %d", n)
		}
	})
}

// TestRenewalsOutOfOrder: the answer to a renewal that was sent before the last one does not move Until.
func TestRenewalsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, queuetest.NewServer())
		g := a.lock(t, backend.Share{}, time.Second)
		a.svc.SetFaults(queuetest.Faults{Delay: 10 * time.Second})
		slow := make(chan error)
		go func() { slow <- g.Renew(t.Context(), ttl) }()
		time.Sleep(time.Second)
		a.svc.SetFaults(queuetest.Faults{})
		want := time.Now().Add(ttl)
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if err := <-slow; err != nil {
			t.Fatal(err)
		}
		if !g.Until().Equal(want) {
			t.Errorf("Until after two renewals of which the first was answered last: want %v, got %v", want, g.Until())
		}
		release(t, g)
	})
}
