package places_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// An event of a place that has ended does not end a later one with the same ID.
func TestEventOfAnEarlierPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := placestest.NewServer()
		p, service := open(t, s), &lagging{}
		late := openWith(t, s, func(inner places.Service) places.Service {
			service.Service = inner
			return service
		})
		first := try(t, p, request(backend.Share{}))
		id := s.Queue(key).Places[0].ID
		waiter := acquire(t, late, request(backend.Share{}))
		service.lag(id)
		release(t, first)
		again := acquire(t, p, request(backend.Share{}))
		if q := s.Queue(key); len(q.Places) != 2 || q.Places[1].ID != id {
			t.Fatalf("want a place that has ID %s again, got %+v", id, q)
		}
		behind := acquire(t, late, request(backend.Share{}))
		s.Interrupt() // the first attempt is granted by a check
		time.Sleep(time.Second)
		g := waiter.granted(t)
		service.report()
		release(t, g)
		time.Sleep(time.Second)
		g = again.granted(t)
		behind.waiting(t)
		release(t, g)
		time.Sleep(time.Second)
		release(t, behind.granted(t))
		free(t, s)
	})
}

// A removal that comes late does not remove the place of a later attempt.
func TestLateRemoval(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		for _, again := range []bool{false, true} { // the caller sends the request again after the removal
			p := open(t, s)
			req := request(backend.Share{})
			g := try(t, p, req)
			p.once("Remove", placestest.Late)
			if err := g.Release(t.Context()); !backend.OutcomeUnknown(err) {
				t.Fatalf("Release: want an unknown outcome, got %v", err)
			}
			if again {
				release(t, try(t, p, req))
			} else if err := p.Abandon(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			g = try(t, p, request(backend.Share{}))
			p.svc.Deliver()
			if n := len(s.Queue(key).Places); n != 1 {
				t.Errorf("sent again: %t: %d places, want that of the later attempt", again, n)
			}
			release(t, g)
			free(t, s)
		}
	})
}

// A grant that is released a second time does not remove the place of a later attempt.
func TestSecondRelease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		for _, twice := range []bool{false, true} { // the caller has sent the request twice, and has two grants of one place
			req := request(backend.Share{})
			first := try(t, p, req)
			if twice {
				release(t, try(t, p, req))
			} else {
				release(t, first)
			}
			next := try(t, p, request(backend.Share{}))
			if err := first.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Errorf("sent twice: %t: the second Release: want ErrLost, got %v", twice, err)
			}
			if n := len(s.Queue(key).Places); n != 1 {
				t.Errorf("sent twice: %t: %d places, want that of the later attempt", twice, n)
			}
			release(t, next)
		}
		free(t, s)
	})
}

// A removal after a loss that comes late, when another one was answered, does not remove the place of a later attempt.
func TestLateRemovalAfterALoss(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		held := try(t, q, request(backend.Share{}))
		req, lost := losable(backend.Share{})
		waiter := acquire(t, p, req)
		p.once("Put", placestest.ReplyLost)
		s.Delete(req.Owner) // it puts another place, at first without an answer
		release(t, held)
		time.Sleep(10 * time.Second)
		g := waiter.granted(t)
		p.once("Remove", placestest.Late)
		if _, err := q.Break(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
		wantLost(t, "broken", g, lost)
		time.Sleep(10 * time.Second) // the removal is sent again, and answered
		next := try(t, p, request(backend.Share{}))
		p.svc.Deliver()
		if n := len(s.Queue(key).Places); n != 1 {
			t.Errorf("%d places, want that of the later attempt", n)
		}
		release(t, next)
		free(t, s)
	})
}
