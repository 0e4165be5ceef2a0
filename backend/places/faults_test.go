package places_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// once makes a fault of the next request of a method.
func (p *process) once(method string, f placestest.Fault) {
	used := false
	p.svc.Inject(func(m string) placestest.Fault {
		if m == method && !used {
			used = true
			return f
		}
		return placestest.None
	})
}

// calls are the two ways to acquire.
func calls(p *process) map[string]func(context.Context, backend.Request) (backend.Grant, error) {
	return map[string]func(context.Context, backend.Request) (backend.Grant, error){"try": p.TryAcquire, "wait": p.Acquire}
}

// A request to put a place that was lost, whose reply was lost, or that comes late leaves nothing behind.
func TestUnansweredPut(t *testing.T) {
	for name, fault := range map[string]placestest.Fault{
		"lost": placestest.Lost, "reply lost": placestest.ReplyLost, "late": placestest.Late,
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
				p := open(t, s)
				other := try(t, p, backend.Request{Key: "other", Owner: request(backend.Share{}).Owner, TTL: ttl})
				for how, acquire := range calls(p) {
					req := request(backend.Share{})
					p.once("Put", fault)
					if _, err := acquire(t.Context(), req); !backend.OutcomeUnknown(err) {
						t.Fatalf("%s: want an unknown outcome, got %v", how, err)
					}
					if err := p.Abandon(t.Context(), req); err != nil {
						t.Fatal(err)
					}
					p.svc.Deliver()
					free(t, s)
				}
				if err := other.Renew(t.Context(), ttl); err != nil {
					t.Errorf("another grant of the session: %v", err)
				}
				release(t, other)
			})
		})
	}
}

// A request that comes after the loss of its grant is refused.
func TestLatePutAfterALoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		release(t, try(t, p, request(backend.Share{})))
		req, lost := losable(backend.Share{})
		p.once("Put", placestest.Late)
		if _, err := p.TryAcquire(t.Context(), req); !backend.OutcomeUnknown(err) {
			t.Fatalf("want an unknown outcome, got %v", err)
		}
		g := try(t, p, req) // the caller sends it again
		if _, err := q.Break(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
		wantLost(t, "broken", g, lost)
		p.svc.Deliver()
		free(t, s)
	})
}

// A refused request has a known outcome.
func TestRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		for _, method := range []string{"Open", "Put"} {
			for how, acquire := range calls(p) {
				p.once(method, placestest.Refused)
				if _, err := acquire(t.Context(), request(backend.Share{})); err == nil || backend.OutcomeUnknown(err) {
					t.Errorf("%s, %s refused: want an error with a known outcome, got %v", how, method, err)
				}
			}
			release(t, try(t, p, request(backend.Share{})))
		}
		free(t, s)
	})
}

// A wait that is cancelled, whenever that is, leaves nothing behind.
func TestCancel(t *testing.T) {
	for name, share := range map[string]backend.Share{"exclusive": {}, "reader": backend.Reader, "permits": permit} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
				p, q := open(t, s), open(t, s)
				for after := range 40 {
					g := try(t, p, request(backend.Share{}))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond/2)
					req := request(share)
					time.AfterFunc(12*time.Millisecond, func() { release(t, g) })
					got, err := q.Acquire(ctx, req)
					switch {
					case err == nil:
						release(t, got)
					case !errors.Is(err, context.DeadlineExceeded):
						t.Fatalf("after %d: want the deadline, got %v", after, err)
					case backend.OutcomeUnknown(err):
						if err := q.Abandon(t.Context(), req); err != nil {
							t.Fatal(err)
						}
					}
					cancel()
					free(t, s)
				}
			})
		})
	}
}

// A waiter survives an outage that is shorter than its TTL, also one of every request but those of the session, and
// gives up after a longer one.
func TestOutage(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		g := try(t, p, request(backend.Share{}))
		a := acquire(t, q, request(backend.Share{}))
		q.svc.Cut(true)
		time.Sleep(ttl / 2)
		q.svc.Cut(false)
		a.waiting(t)
		q.svc.Inject(func(method string) placestest.Fault {
			if method == "Renew" {
				return placestest.None
			}
			return placestest.Refused
		})
		s.Interrupt()
		time.Sleep(ttl / 2)
		q.svc.Inject(nil)
		time.Sleep(2 * time.Second)
		a.waiting(t)
		release(t, g)
		settle()
		g = a.granted(t)

		b := acquire(t, p, request(backend.Share{}))
		p.svc.Cut(true)
		begun := time.Now()
		for !b.done() && time.Since(begun) < 4*ttl {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if !b.done() || !errors.Is(b.err, backend.ErrUncertain) {
			t.Fatalf("after an outage of %v: want ErrUncertain, got %v, %v", 4*ttl, b.done(), b.err)
		}
		if took := time.Since(begun); took < ttl {
			t.Errorf("it gave up after %v", took)
		}
		p.svc.Cut(false)
		if err := p.Abandon(t.Context(), b.req); err != nil {
			t.Fatal(err)
		}
		release(t, g)
		time.Sleep(2 * ttl)
		free(t, s)
	})
}

// Slots are recorded again if the request, or its reply, was lost.
func TestSlotsAreRecordedAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		for _, f := range []placestest.Fault{placestest.Refused, placestest.Lost, placestest.ReplyLost, placestest.Late} {
			g := try(t, p, request(backend.Share{}))
			a := acquire(t, q, request(permit))
			q.once("Update", f)
			release(t, g)
			time.Sleep(5 * time.Second)
			g = a.granted(t)
			q.svc.Deliver()
			if got, want := s.Queue(key).Places[0].Slots, g.(backend.SlotHolder).Slots(); len(got) != 1 || got[0] != want[0] {
				t.Errorf("slots %v at the service, %v of the grant", got, want)
			}
			release(t, g)
		}
		free(t, s)
	})
}

// A place that was broken before its attempt knows that it holds is not granted.
func TestBrokenBeforeItIsKnown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		release(t, try(t, p, request(backend.Share{})))
		g := try(t, q, request(backend.Share{}))
		a := acquire(t, p, request(backend.Share{}))
		a.waiting(t)
		first := s.Queue(key).Places[1].Order
		go func() {
			release(t, g)
			if _, err := q.Break(t.Context(), key, a.req.Owner); err != nil {
				t.Error(err)
			}
		}()
		settle()
		if h := s.Queue(key).Places; !a.done() || a.err != nil || len(h) > 0 && h[0].Order == first {
			t.Fatalf("done %v, %v, %+v", a.done(), a.err, h)
		}
		_ = a.grant.Release(t.Context())
		free(t, s)
	})
}
