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

// A session that ends, at the service or by the clock of the client, is the loss of its grants before others can hold.
func TestSessionEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p, q := open(t, s), open(t, s)
		req, lost := losable(backend.Share{})
		g := try(t, p, req)
		next := acquire(t, q, request(backend.Share{}))
		p.svc.Cut(true)
		until := g.Until()
		var reported time.Time
		for !next.done() {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if reported.IsZero() && lost.Load() != nil {
				reported = time.Now()
			}
		}
		if reported.IsZero() || !reported.Before(next.at) || until.After(next.at) {
			t.Errorf("the next was granted at %v, the holder trusted until %v and learned at %v", next.at, until, reported)
		}
		p.svc.Cut(false)
		wantLost(t, "cut off", g, lost)
		release(t, next.granted(t))
		req, lost = losable(backend.Share{})
		g = try(t, p, req)
		p.svc.Expire()
		time.Sleep(ttl / 4)
		wantLost(t, "ended by the service", g, lost)
		free(t, s)
	})
}

// Trust counts from before a request, also on a session that is older, and lasts nearly the TTL.
func TestTrust(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		for range 50 {
			begun := time.Now()
			g := try(t, p, request(backend.Share{}))
			if left := g.Until().Sub(begun); left < ttl*4/5 || left > ttl {
				t.Errorf("trusted for %v of %v", left, ttl)
			}
			begun = time.Now()
			if err := g.Renew(t.Context(), ttl); err != nil {
				t.Fatal(err)
			}
			if left := g.Until().Sub(begun); left < ttl*9/10 || left > ttl {
				t.Errorf("trusted for %v of %v after a renewal", left, ttl)
			}
			if err := g.Renew(t.Context(), ttl+time.Second); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("beyond the TTL of the session: want ErrInvalid, got %v", err)
			}
			if err := g.(backend.Keeper).Keep(t.Context(), time.Second); err != nil || g.Until().Sub(begun) > 2*time.Second {
				t.Errorf("Keep: %v, %v left", err, g.Until().Sub(begun))
			}
			release(t, g)
			time.Sleep(ttl / 7)
		}
	})
}

// A renewal whose request is not answered in time succeeds if the session was renewed since the last one, and only then.
func TestRenewalBySlowService(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		g := try(t, p, request(backend.Share{}))
		granted := g.Until()
		time.Sleep(ttl / 5) // the session has renewed itself once
		p.svc.Inject(func(method string) placestest.Fault {
			if method == "Renew" {
				return placestest.Lost
			}
			return placestest.None
		})
		renew := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), ttl/8)
			defer cancel()
			return g.Renew(ctx, ttl)
		}
		if err := renew(); err != nil || !g.Until().After(granted) {
			t.Errorf("renewed since the grant: %v, trusted for %v more", err, g.Until().Sub(granted))
		}
		if err := renew(); err == nil {
			t.Error("no answer since the last renewal: want an error")
		}
	})
}

// A session without attempts is closed.
func TestIdleSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		g := try(t, p, request(backend.Share{}))
		time.Sleep(5 * time.Minute)
		release(t, g)
		time.Sleep(5 * time.Minute)
		before := p.svc.Requests()
		time.Sleep(time.Minute)
		if n := p.svc.Requests() - before; n != 0 {
			t.Errorf("an idle process makes %d requests a minute", n)
		}
		release(t, try(t, p, request(backend.Share{})))
	})
}

// An operator deletes the place of a holder: the next renewal is its loss.
func TestRenewalOfADeletedPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		req := request(backend.Share{})
		g := try(t, p, req)
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		s.Delete(req.Owner)
		for range 2 {
			if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
				t.Errorf("want ErrLost, got %v", err)
			}
		}
		free(t, s)
	})
}

// A session that ends while a request is under way does not keep its grant: the attempt puts another place.
func TestSessionEndsDuringAPut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, s *placestest.Server) {
		p := open(t, s)
		release(t, try(t, p, request(backend.Share{})))
		for _, acquire := range calls(p) {
			time.AfterFunc(1500*time.Microsecond, p.svc.EndSessions) // the reply is on its way
			g, err := acquire(t.Context(), request(backend.Reader))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * ttl)
			if err := g.Renew(t.Context(), ttl); err != nil {
				t.Errorf("of a grant in a session that has ended: %v", err)
			}
			release(t, g)
		}
		free(t, s)
	})
}
