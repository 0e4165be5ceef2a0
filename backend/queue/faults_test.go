package queue_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// TestOutage: waiters survive an outage that is shorter than their TTL, and end together after one that is longer.
func TestOutage(t *testing.T) {
	for _, lasts := range []time.Duration{ttl / 2, 2 * ttl} {
		synctest.Test(t, func(t *testing.T) {
			s := queuetest.NewServer()
			a, b := start(t, s), start(t, s)
			g := b.lock(t, backend.Share{}, time.Second)
			var all []<-chan result
			for range 5 {
				all = append(all, a.waits(t, t.Context(), backend.Share{}))
			}
			a.svc.SetFaults(queuetest.Faults{Delay: 5 * time.Second, LoseRequests: true, LoseEvents: true})
			a.Interrupted("")
			fresh := make(chan error, 3)
			for range 3 {
				go func() {
					_, err := a.Acquire(t.Context(), request(backend.Share{}))
					fresh <- err
				}()
			}
			// A request of an attempt that waits is in flight, and then one of those.
			time.Sleep(11 * time.Second)
			for range 3 {
				select {
				case err := <-fresh:
					if err == nil {
						t.Fatal("Acquire in an outage: want an error")
					}
				default:
					t.Error("an attempt that has no place, in an outage: want the error of the first one, it waits")
				}
			}
			time.Sleep(lasts - 11*time.Second)
			a.svc.SetFaults(queuetest.Faults{})
			for _, got := range all {
				if lasts < ttl {
					if err := g.Renew(t.Context(), ttl); err != nil {
						t.Fatal(err)
					}
					release(t, g)
					g = granted(t, got, 10*time.Second)
					continue
				}
				select {
				case r := <-got:
					if !errors.Is(r.err, backend.ErrUncertain) || r.after > ttl+6*time.Second {
						t.Errorf("a waiter after an outage of %v: want ErrUncertain after its TTL of %v, got %v after %v", lasts, ttl, r.err, r.after)
					}
				default:
					t.Errorf("a waiter after an outage of %v: want an error, it waits", lasts)
				}
			}
		})
	}
}

// TestCancel: nothing remains of an attempt whose context ends, and the service refuses late requests only if there
// can be any.
func TestCancel(t *testing.T) {
	for _, unanswered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := queuetest.NewServer()
			a, b := start(t, s), start(t, s)
			g := b.lock(t, backend.Share{}, time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := a.waits(t, ctx, backend.Share{})
			if unanswered {
				a.svc.SetFaults(queuetest.Faults{LoseReplies: true})
				a.Interrupted("")
				time.Sleep(time.Second)
				a.svc.SetFaults(queuetest.Faults{})
			}
			cancel()
			r := <-got
			if !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, backend.ErrUncertain) {
				t.Fatalf("Acquire whose context ends: want its error and ErrUncertain, got %v", r.err)
			}
			if err := a.Abandon(t.Context(), r.req); err != nil {
				t.Fatalf("Abandon: %v", err)
			}
			if late := a.svc.counts().late > 0; late != unanswered {
				t.Errorf("Abandon refuses late requests: want %v, got %v", unanswered, late)
			}
			next := b.waits(t, t.Context(), backend.Share{})
			release(t, g)
			release(t, granted(t, next, time.Millisecond))
		})
	}
}

// TestCancelBeforeTurn: an attempt that has sent nothing leaves nothing.
func TestCancelBeforeTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a := start(t, s)
		a.svc.SetFaults(queuetest.Faults{Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		first := make(chan result, 1)
		go func() {
			g, err := a.Acquire(t.Context(), request(backend.Share{}))
			first <- result{grant: g, err: err}
		}()
		synctest.Wait()
		_, err := a.Acquire(ctx, request(backend.Share{}))
		if !errors.Is(err, context.DeadlineExceeded) || backend.OutcomeUnknown(err) {
			t.Errorf("an attempt whose context ends before its turn: want the error of its context and a known outcome, got %v", err)
		}
		release(t, granted(t, first, 2*time.Second))
	})
}

// TestDisconnected: waiters whose connection for events ends enter the queue again, and are granted the key.
func TestDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b := start(t, s), start(t, s)
		g := b.lock(t, backend.Share{}, time.Second)
		var all []<-chan result
		for range 5 {
			all = append(all, a.waits(t, t.Context(), backend.Share{}))
		}
		a.svc.Disconnect()
		release(t, g) // removes all
		g = b.lock(t, backend.Share{}, time.Second)
		a.svc.Connect()
		a.Interrupted("")
		synctest.Wait()
		release(t, g)
		for _, next := range all {
			release(t, granted(t, next, time.Second))
		}
	})
}

// TestUnansweredThenGranted: the release of a grant that an event brought refuses the request that had no answer.
func TestUnansweredThenGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, g, next := contended(t)
		a.svc.SetFaults(queuetest.Faults{LoseReplies: true})
		a.Interrupted("")
		synctest.Wait()
		a.svc.SetFaults(queuetest.Faults{})
		release(t, g)
		release(t, granted(t, next, time.Second))
		if a.svc.counts().late != 1 {
			t.Errorf("Release after a request without answer: want late requests refused, they are not")
		}
	})
}

// TestTurnNotUsed: an attempt whose context ends when it gets its turn leaves that to the next.
func TestTurnNotUsed(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := queuetest.NewServer()
			a := start(t, s)
			a.svc.SetFaults(queuetest.Faults{Delay: time.Second})
			held := make(chan result, 3)
			for _, limit := range []time.Duration{time.Minute, time.Second, time.Minute} {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					req := request(backend.Share{})
					g, err := a.Acquire(ctx, req)
					if err == nil {
						err = g.Release(t.Context())
					} else {
						_ = a.Abandon(t.Context(), req)
						err = nil
					}
					held <- result{err: err}
				}()
				synctest.Wait()
			}
			for range 3 {
				select {
				case <-held:
				case <-time.After(30 * time.Second):
					t.Fatal("an attempt behind one whose context has ended: want it to get a turn")
				}
			}
			time.Sleep(2 * time.Second)
		})
	}
}

// TestLostEvents: a waiter whose events get lost finds its grant, and doubts the connection.
func TestLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, g, next := contended(t)
		a.svc.SetFaults(queuetest.Faults{LoseEvents: true})
		release(t, g)
		release(t, granted(t, next, ttl+ttl/2+time.Second))
		time.Sleep(2 * time.Second)
		if a.svc.counts().doubts == 0 {
			t.Error("a grant of which no event has come: want the events doubted")
		}
	})
}

// TestDoubtAfterClose: a Service that is closed is not used any more.
func TestDoubtAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, g, next := contended(t)
		a.svc.SetFaults(queuetest.Faults{LoseEvents: true})
		release(t, g)
		a.Interrupted("")
		release(t, granted(t, next, 100*time.Millisecond))
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := a.svc.counts().doubts; n > 0 {
			t.Errorf("Doubt of a Service that is closed: want no call, got %d", n)
		}
	})
}

// TestLateEvent: a grant of which the event comes late is asked for, and is valid for the whole TTL; one that comes
// after its end is not taken.
func TestLateEvent(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a, _, g, next := contended(t)
			a.svc.SetFaults(queuetest.Faults{Delay: delay})
			pushed := time.Now()
			release(t, g)
			time.Sleep(10 * time.Millisecond)
			a.svc.SetFaults(queuetest.Faults{})
			got := granted(t, next, 2*ttl)
			if delay > time.Second && time.Until(got.Until()) < ttl-10*time.Millisecond {
				t.Errorf("a grant whose event is %v late: want it valid for %v, got %v", delay, ttl, time.Until(got.Until()))
			}
			if delay == time.Second && !got.Until().Equal(pushed.Add(3*time.Second)) && time.Since(pushed) < 3*time.Second {
				if d := got.Until().Sub(pushed); d > 3*time.Second {
					t.Errorf("a provisional grant: want it trusted for at most 3s after it was made, got %v", d)
				}
			}
			release(t, got)
		})
	}
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b := start(t, s), start(t, s)
		lost := make(chan error, 1)
		req := request(backend.Share{})
		req.OnLost = func(err error) { lost <- err }
		g, err := a.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Break(t.Context(), key, "another owner"); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("Break of another owner: want ErrLocked, got %v", err)
		}
		if h, err := b.Break(t.Context(), key, req.Owner); err != nil || h == nil || h.Owner != req.Owner {
			t.Errorf("Break: want the holder, got %v, %v", h, err)
		}
		synctest.Wait()
		select {
		case err := <-lost:
			if !errors.Is(err, backend.ErrLost) {
				t.Errorf("OnLost: want ErrLost, got %v", err)
			}
		default:
			t.Error("OnLost: want it called after Break")
		}
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Release of a broken grant: want ErrLost, got %v", err)
		}
		if h, err := b.Break(t.Context(), key, ""); h != nil || err != nil {
			t.Errorf("Break of a free key: want nil, got %v, %v", h, err)
		}
	})
}

// TestBrokenOnItsWay: an attempt does not take a grant that was broken before its event came.
func TestBrokenOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, g, next := contended(t)
		a.svc.SetFaults(queuetest.Faults{Delay: 100 * time.Millisecond})
		release(t, g)
		if h, err := b.Break(t.Context(), key, ""); h == nil || err != nil {
			t.Fatalf("Break of a pushed grant: want its holder, got %v, %v", h, err)
		}
		other := b.lock(t, backend.Share{}, time.Second)
		a.svc.SetFaults(queuetest.Faults{})
		select {
		case r := <-next:
			if r.err == nil && time.Now().Before(r.grant.Until()) && r.grant.Renew(t.Context(), ttl) == nil {
				t.Error("a grant that was broken before its event came was renewed")
			}
		case <-time.After(10 * time.Second):
		}
		if err := other.Renew(t.Context(), ttl); err != nil {
			t.Errorf("the holder after the break: %v", err)
		}
		release(t, other)
	})
}

// TestEventAsContextEnds: an event for an attempt whose context ends at the same time takes no turn from the others.
func TestEventAsContextEnds(t *testing.T) {
	for range 2000 {
		synctest.Test(t, func(t *testing.T) {
			a, _, g, next := contended(t)
			ctx, cancel := context.WithCancel(t.Context())
			req, gone := request(backend.Share{}), make(chan struct{})
			go func() {
				defer close(gone)
				if _, err := a.Acquire(ctx, req); err != nil {
					_ = a.Abandon(t.Context(), req)
				}
			}()
			synctest.Wait()
			go cancel()
			for range 20 {
				a.Asked(key, req.Owner)
				runtime.Gosched()
			}
			<-gone
			a.Interrupted("")
			synctest.Wait()
			before := a.svc.counts().asked
			a.Interrupted("")
			synctest.Wait()
			if a.svc.counts().asked == before {
				t.Error("a waiter that is to ask, after another attempt of its process has ended: it does not")
			}
			release(t, g)
			release(t, granted(t, next, time.Second))
		})
		if t.Failed() {
			return
		}
	}
}

// TestRenewalPasses: a process whose renewal has admitted a waiter looks whether that one claims its grant.
func TestRenewalPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, permit := queuetest.NewServer(), backend.Share{Weight: 1, Capacity: 2}
		a, dead, stopped := start(t, s), start(t, s), start(t, s)
		dead.lock(t, permit, time.Second)
		time.Sleep(ttl / 2)
		g := a.lock(t, permit, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped.waits(t, ctx, permit)
		stopped.stop()
		time.Sleep(ttl/2 + time.Second) // the lease of dead has ended
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(queue.ProvisionalTTL + time.Second)
		if n := a.svc.counts().passes; n != 1 {
			t.Errorf("Pass after a renewal that granted the key to a stopped process: want 1 call, got %d", n)
		}
	})
}
