package places_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

var permit = backend.Share{Weight: 1, Capacity: 2}

// A free lock is one request, and so is its release, for each share.
func TestFreeLock(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		release(t, try(t, p, request(backend.Share{}))) // the session exists
		for _, share := range []backend.Share{{}, backend.Reader} {
			before := p.svc.Requests()
			g := acquire(t, p, request(share)).granted(t)
			release(t, g)
			release(t, try(t, p, request(share)))
			if n := p.svc.Requests() - before; n != 4 {
				t.Errorf("%v: want 4 requests of two locks and unlocks, got %d", share, n)
			}
		}
		g := try(t, p, request(permit))
		if slots := g.(backend.SlotHolder).Slots(); !slices.Equal(slots, []int{0}) {
			t.Errorf("slots %v, want the first", slots)
		}
		release(t, g)
		free(t, s)
	})
}

// Waiters are served in the order of their places. A cycle costs the same for each number of processes, and a hand-off
// takes a removal and an event.
func TestHandOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		const n = 40
		var ps []*process
		for range n {
			ps = append(ps, open(t, s))
		}
		g := try(t, ps[0], request(backend.Share{}))
		var all []*attempt
		for _, p := range ps {
			all = append(all, acquire(t, p, request(backend.Share{})))
			all[len(all)-1].waiting(t)
		}
		requests := func() (sum int) {
			for _, p := range ps {
				sum += p.svc.Requests()
			}
			return sum
		}
		time.Sleep(time.Millisecond) // no renewal is under way
		before, last := requests(), g.Token()
		for i, a := range all {
			time.Sleep(10 * time.Millisecond)
			unlocked := time.Now()
			release(t, g)
			time.Sleep(time.Millisecond)
			g = a.granted(t)
			if took := a.at.Sub(unlocked); took > 2*time.Millisecond {
				t.Errorf("hand-off %d took %v, want the removal's way to the service and the event's way back", i, took)
			}
			if g.Token() <= last {
				t.Errorf("token %d after %d", g.Token(), last)
			}
			last = g.Token()
		}
		release(t, g)
		if sum := requests() - before; sum > 4*n {
			t.Errorf("%d hand-offs took %d requests, want at most 4 each", n, sum)
		}
		free(t, s)
	})
}

// The waiters of one process are served by what the first of them reads.
func TestLine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		g := try(t, p, request(backend.Share{}))
		var all []*attempt
		for range 100 {
			all = append(all, acquire(t, p, request(backend.Share{})))
		}
		before := p.svc.Requests()
		for _, a := range all {
			release(t, g)
			settle()
			g = a.granted(t)
		}
		release(t, g)
		if n := p.svc.Requests() - before; n > 450 {
			t.Errorf("100 hand-offs in a process took %d requests", n)
		}
		free(t, s)
	})
}

func TestManyReaders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, other := open(t, s), open(t, s)
		w := try(t, other, request(backend.Share{}))
		got := make(chan backend.Grant)
		const n = 500
		for range n {
			go func() {
				g, err := p.Acquire(t.Context(), request(backend.Reader))
				if err != nil {
					t.Error(err)
				}
				got <- g
			}()
		}
		settle()
		last := acquire(t, other, request(backend.Share{}))
		last.waiting(t)
		before := p.svc.Requests()
		release(t, w)
		var all []backend.Grant
		for range n {
			all = append(all, <-got)
		}
		if made := p.svc.Requests() - before; made > 10 {
			t.Errorf("%d readers were granted with %d requests", n, made)
		}
		last.waiting(t)
		for _, g := range all {
			go func() {
				if err := g.Renew(t.Context(), ttl); err != nil {
					t.Error(err)
				}
			}()
		}
		before = p.svc.Requests()
		settle()
		if made := p.svc.Requests() - before; made > 20 {
			t.Errorf("%d renewals at once took %d requests", n, made)
		}
		for _, g := range all {
			go func() {
				if err := g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		settle()
		release(t, last.granted(t))
		free(t, s)
	})
}

// Permits get distinct slots, and one that waits does not wait for a holder that does nothing.
func TestPermits(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q, dead := open(t, s), open(t, s), open(t, s)
		w := try(t, p, request(backend.Share{}))
		stopped := acquire(t, dead, request(backend.Share{Weight: 1, Capacity: 3}))
		stopped.waiting(t)
		dead.svc.Cut(true)
		a := acquire(t, q, request(backend.Share{Weight: 2, Capacity: 3}))
		b := acquire(t, p, request(backend.Share{Weight: 1, Capacity: 3}))
		release(t, w)
		settle()
		g := a.granted(t)
		if slots := g.(backend.SlotHolder).Slots(); !slices.Equal(slots, []int{1, 2}) {
			t.Errorf("slots %v behind a stopped holder, want 1 and 2", slots)
		}
		b.waiting(t)
		release(t, g)
		settle()
		h := b.granted(t)
		if slots := h.(backend.SlotHolder).Slots(); !slices.Equal(slots, []int{1}) {
			t.Errorf("slots %v, want 1", slots)
		}
		if _, err := p.TryAcquire(t.Context(), request(backend.Share{Weight: 2, Capacity: 3})); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("more than is free: want ErrLocked, got %v", err)
		}
		release(t, h)
		stopped.end()
		time.Sleep(2 * ttl) // its session ends
		free(t, s)
	})
}

func TestDowngrade(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		for _, lose := range []placestest.Fault{placestest.None, placestest.ReplyLost} {
			g := try(t, p, request(backend.Share{}))
			r, behind := acquire(t, q, request(backend.Reader)), acquire(t, q, request(permit))
			r.waiting(t)
			p.svc.Inject(func(method string) placestest.Fault {
				if method == "Update" {
					return lose
				}
				return placestest.None
			})
			err := g.(backend.Downgrader).Downgrade(t.Context())
			p.svc.Inject(nil)
			if lose != placestest.None {
				if !errors.Is(err, backend.ErrUncertain) {
					t.Errorf("without a reply: want ErrUncertain, got %v", err)
				}
				err = g.(backend.Downgrader).Downgrade(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			settle()
			release(t, r.granted(t))
			behind.waiting(t)
			release(t, g)
			settle()
			release(t, behind.granted(t))
			if err := g.(backend.Downgrader).Downgrade(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Errorf("after Release: want ErrLost, got %v", err)
			}
		}
		free(t, s)
	})
}

// An operator deletes the place of a waiter, or its session ends: it puts another one.
func TestWaiterPutsAnother(t *testing.T) {
	for name, share := range map[string]backend.Share{"exclusive": {}, "reader": backend.Reader, "permits": permit} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
				p, q := open(t, s), open(t, s)
				for what, end := range map[string]func(owner string){
					"place": s.Delete, "session": func(string) { q.svc.Expire() },
				} {
					g := try(t, p, request(backend.Share{}))
					first, second := acquire(t, q, request(share)), acquire(t, q, request(share))
					first.waiting(t)
					end(first.req.Owner)
					time.Sleep(ttl / 3) // it renews its session
					if n := len(s.Queue(key).Places); n != 3 {
						t.Fatalf("%s: want the holder and two waiters, got %d places", what, n)
					}
					release(t, g)
					for range 2 {
						settle()
						for _, a := range []*attempt{first, second} {
							if a.done() && a.grant != nil {
								release(t, a.granted(t))
								a.grant = nil
							}
						}
					}
					if !first.done() || !second.done() {
						t.Errorf("%s: a waiter was not granted", what)
					}
					free(t, s)
				}
			})
		})
	}
}

func TestBreak(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		if h, err := q.Break(t.Context(), key, ""); h != nil || err != nil {
			t.Errorf("of a free key: %v, %v", h, err)
		}
		req, lost := losable(backend.Share{})
		g := try(t, p, req)
		next := acquire(t, q, request(backend.Share{}))
		var locked *backend.LockedError
		if _, err := q.Break(t.Context(), key, next.req.Owner); !errors.As(err, &locked) || locked.Holder.Owner != req.Owner {
			t.Errorf("of a waiter: want the holder in the error, got %v", err)
		}
		if h, err := q.Break(t.Context(), key, req.Owner); err != nil || h.Owner != req.Owner {
			t.Errorf("want the holder, got %v, %v", h, err)
		}
		wantLost(t, "broken", g, lost)
		release(t, next.granted(t))

		r1, lost1 := losable(backend.Reader)
		r2, lost2 := losable(backend.Reader)
		g1, g2 := try(t, p, r1), try(t, q, r2)
		if h, err := p.Break(t.Context(), key, ""); err != nil || h.Owner != r1.Owner {
			t.Errorf("of all: want the first, got %v, %v", h, err)
		}
		wantLost(t, "the first of two", g1, lost1)
		wantLost(t, "the second of two", g2, lost2)
		free(t, s)
	})
}

func TestInterruptedWatches(t *testing.T) {
	for name, share := range map[string]backend.Share{"exclusive": {}, "reader": backend.Reader, "permits": permit} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
				p, q := open(t, s), open(t, s)
				for range 3 {
					g := try(t, p, request(backend.Share{}))
					a := acquire(t, q, request(share))
					a.waiting(t)
					s.Interrupt()
					release(t, g)
					settle()
					release(t, a.granted(t))
				}
				free(t, s)
			})
		})
	}
}

func TestClose(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		g := try(t, p, request(backend.Share{}))
		a := acquire(t, q, request(backend.Share{}))
		if err := q.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		<-a.over
		if !errors.Is(a.err, backend.ErrClosed) {
			t.Errorf("a waiter: want ErrClosed, got %v", a.err)
		}
		if _, err := q.TryAcquire(t.Context(), request(backend.Share{})); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("TryAcquire: want ErrClosed, got %v", err)
		}
		if n := len(s.Queue(key).Places); n != 1 {
			t.Errorf("want the holder alone, got %d places", n)
		}
		release(t, g)
	})
}

var _ places.Events = (*places.Backend)(nil)

// A queue whose first places are not known says nothing of who holds.
func TestQueueOfTheLast(t *testing.T) {
	reader := places.Place{Contender: backend.Contender{Share: backend.Reader}}
	for _, all := range [][]places.Place{nil, {reader}, {reader, reader}} {
		q := places.Queue{Places: all}
		if n := q.Holders(); n != len(all) || !q.Fits(backend.Reader) {
			t.Errorf("%d readers: %d hold, another one fits: %v", len(all), n, q.Fits(backend.Reader))
		}
		q.More = true
		if n := q.Holders(); n != 0 || q.Fits(backend.Reader) {
			t.Errorf("the last %d readers: %d hold, another one fits: %v", len(all), n, q.Fits(backend.Reader))
		}
	}
}
