package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// ttlHolds wants a grant, asked for at asked, to exclude and to be renewed.
func ttlHolds(t *T, c *lock.Client, key string, ttl time.Duration, g backend.Grant, asked time.Time) {
	holds := func(what string, ok bool, got any) {
		switch took := time.Since(asked); {
		case ok:
		case took >= ttl/2:
			t.again("%s for %v, got %v; it took %v until then", what, ttl, got, took)
		default:
			t.fatalf("%s for %v, got %v", what, ttl, got)
		}
	}
	_, err := c.Mutex(key).TryLock(t.ctx)
	holds("a key that was just granted: want ErrLocked", errors.Is(err, lock.ErrLocked), err)
	renewed := time.Now()
	err = g.Renew(t.ctx, ttl)
	holds("its renewal: want nil", err == nil, err)
	asked = renewed
	_, err = c.Mutex(key).TryLock(t.ctx)
	holds("a key that was just renewed: want ErrLocked", errors.Is(err, lock.ErrLocked), err)
}

func ttlRange(t *T) {
	c := t.client()
	for _, ttl := range []time.Duration{max(t.caps.MinTTL, 50*time.Millisecond), 200 * time.Millisecond, 999 * time.Millisecond, time.Second,
		1500*time.Millisecond + time.Nanosecond, 30 * time.Second, time.Hour} {
		if ttl < t.caps.MinTTL || (t.caps.MaxTTL > 0 && ttl > t.caps.MaxTTL) {
			continue
		}
		key := t.key("ttl")
		b := t.open()
		var before time.Time
		var g backend.Grant
		t.eventually(t.slack(), fmt.Sprintf("a grant of TTL %v, which is within the declared bounds", ttl), func() (err error) {
			req := request(key, ttl)
			before = time.Now()
			if g, err = b.TryAcquire(t.ctx, req); errors.Is(err, backend.ErrUncertain) && !errors.Is(err, backend.ErrInvalid) {
				return errors.Join(err, b.Abandon(t.ctx, req)) // the service was slower than so short a TTL
			} else if err != nil {
				t.fatalf("TryAcquire with TTL %v, which is within the declared bounds: want a grant, got %v", ttl, err)
			}
			return nil
		})
		after := time.Now()
		if t.expires() {
			until := g.Until()
			if until.IsZero() {
				t.errorf("Until of a grant of TTL %v: want an instant, since the backend ends a grant by its clock, got zero", ttl)
			}
			if until.After(after.Add(ttl)) {
				t.errorf("Until of a grant of TTL %v: want it at most that far after the reply, it is %v", ttl, until.Sub(after))
			}
		}
		if ttl >= time.Second {
			ttlHolds(t, c, key, ttl, g, before)
		}
		if err := g.Release(t.ctx); err != nil && (time.Since(before) < ttl/2 || !errors.Is(err, backend.ErrLost)) {
			t.errorf("Release of a grant of TTL %v: want nil, got %v", ttl, err)
		}
		t.free(c, key, "a released key", t.slack())
	}
}

func ttlRefused(t *T) {
	bad := []time.Duration{0, -time.Second, time.Nanosecond, t.caps.MinTTL - 1}
	if t.caps.MaxTTL > 0 {
		bad = append(bad, t.caps.MaxTTL+1)
	}
	c := t.client()
	l := t.mustLock(c.Mutex(t.key("held")), "a free key")
	for _, ttl := range bad {
		refused := func(where string, err error) {
			if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "ttl") || !strings.Contains(fmt.Sprint(err), ttl.String()) {
				t.errorf("%s with TTL %v: want ErrInvalid that names ttl and its value, got %v", where, ttl, err)
			}
		}
		b := t.open()
		_, err := lock.New(b, lock.WithTTL(ttl))
		refused("New", err)
		_, err = c.Mutex(t.key("bad-ttl"), lock.WithTTL(ttl)).TryLock(t.ctx)
		refused("TryLock", err)
		refused("Extend", l.Extend(t.ctx, ttl))
	}
	if err := l.Check(t.ctx); err != nil {
		t.errorf("a lease after refused TTLs: want Check to say it holds, got %v", err)
	}
	t.mustUnlock(l, "the holder")
}

// leastTTL looks for a service that keeps a grant for much longer than was asked. Clocks that tick
// coarsely and a busy machine have time; a busy machine has several rounds.
func leastTTL(t *T) {
	ttl := max(t.caps.MinTTL, 50*time.Millisecond) // what the core accepts
	bound := 3*ttl + 500*time.Millisecond
	raw, other := t.open(), t.open()
	const rounds = 5
	var took time.Duration
	for range rounds {
		req := request(t.key("least-ttl"), ttl)
		start := time.Now()
		if _, err := raw.TryAcquire(t.ctx, req); err != nil {
			t.notef("TryAcquire with TTL %v: %v", ttl, errors.Join(err, raw.Abandon(t.ctx, req))) // a slow service; its TTL is judged elsewhere
			continue
		}
		var next backend.Grant
		t.eventually(bound+t.slack(), fmt.Sprintf("the key of a grant of TTL %v that is not renewed", ttl), func() (err error) {
			next, err = other.TryAcquire(t.ctx, request(req.Key, t.longTTL()))
			return err
		})
		took = time.Since(start)
		if err := next.Release(t.ctx); err != nil {
			t.errorf("Release by the successor: want nil, got %v", err)
		}
		if took <= bound {
			return
		}
		t.notef("free after %v", took)
	}
	t.errorf("the key of a grant of TTL %v that is not renewed: want it free within %v in one of %d rounds, it took %v in the last", ttl, bound, rounds, took)
}
