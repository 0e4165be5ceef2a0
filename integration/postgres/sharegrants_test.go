package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
)

// slotsAtHandOver: permits that one release admits have the lowest free slots, in their order.
func slotsAtHandOver(s *stage) {
	of := func(weight int) backend.Share { return backend.Share{Weight: weight, Capacity: 5} }
	low, large := s.tryShare(of(1)), s.tryShare(of(4))
	first, second := waitFor(s, s.b, s.share(of(1))), waitFor(s, s.b, s.share(of(2)))
	must(s, low.Release(s.Context()))
	g := s.next(first)
	must(s, large.Release(s.Context()))
	h := s.next(second)
	if got := fmt.Sprint(g.(backend.SlotHolder).Slots(), h.(backend.SlotHolder).Slots()); got != "[0] [1 2]" {
		s.Errorf("want the slots [0] [1 2], got %s", got)
	}
	must(s, g.Release(s.Context()))
	must(s, h.Release(s.Context()))
}

// keptReader: a reader that is left to expire early frees its share then.
func keptReader(s *stage) {
	g := s.tryShare(backend.Reader)
	got := waitFor(s, s.b, request(s.key, time.Hour))
	begun := time.Now()
	must(s, g.(backend.Keeper).Keep(s.Context(), 500*time.Millisecond))
	w := s.next(got)
	if took := time.Since(begun); took < 500*time.Millisecond {
		s.Errorf("want the reader kept for 500ms, a writer was granted after %v", took)
	}
	s.lost("Release of a reader that expired", g.Release(s.Context()))
	must(s, w.Release(s.Context()))
}

// expiredShare: a share that expires is free in its time, beside one that does not.
func expiredShare(s *stage) {
	half := backend.Share{Weight: 1, Capacity: 2}
	req := s.share(half)
	req.TTL = 500 * time.Millisecond
	short, err := s.b.TryAcquire(s.Context(), req)
	must(s, err)
	long := s.tryShare(half)
	g := s.next(waitFor(s, s.b, s.share(half)))
	if left := time.Until(short.Until()); left > 0 {
		s.Errorf("want the share kept for its TTL, it was granted %v before", left)
	}
	if got := fmt.Sprint(g.(backend.SlotHolder).Slots()); got != "[0]" {
		s.Errorf("want the slot of the share that expired, [0], got %s", got)
	}
	s.lost("Renew of the share that expired", short.Renew(s.Context(), time.Hour))
	must(s, long.Renew(s.Context(), time.Hour))
	must(s, long.Release(s.Context()))
	must(s, g.Release(s.Context()))
	short, err = s.b.TryAcquire(s.Context(), req)
	must(s, err)
	s.expireShares("")
	s.lost("Renew of an expired share", short.Renew(s.Context(), time.Hour))
	s.lost("Release of an expired share", short.Release(s.Context()))
}

// prefixOfPermits: one release admits the requests at the head of the queue that fit together,
// and none behind one that does not.
func prefixOfPermits(s *stage) {
	of := func(weight int) backend.Share { return backend.Share{Weight: weight, Capacity: 5} }
	g := s.tryShare(of(5))
	var queue []string
	for _, share := range []backend.Share{of(2), of(2), of(2), {}, of(1)} {
		req := s.enqueueShare("1111111111111111", share)
		queue = append(queue, req.Owner)
	}
	s.row("capacity = 5")
	if _, err := s.b.TryAcquire(s.Context(), s.share(backend.Reader)); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "semaphore of 5") {
		s.Errorf("a reader beside permits: want an ErrInvalid that names the capacity, got %v", err)
	}
	must(s, g.Release(s.Context()))
	s.wantHolders("after the release of all permits", queue[0], queue[1])
	for i, want := range [][]string{{queue[1], queue[2]}, {queue[2]}, {queue[3]}, {queue[4]}} {
		owner := s.holders()[0]
		_, err := s.b.Break(s.Context(), s.key, owner)
		must(s, err)
		s.wantHolders(fmt.Sprint("after end ", i), want...)
	}
}

// breakOfReaders: each holder of a lock that is broken loses it.
func breakOfReaders(s *stage) {
	one, two := s.tryShare(backend.Reader), s.tryShare(backend.Reader)
	owners := s.holders()
	broken, err := s.b.Break(s.Context(), s.key, owners[1])
	must(s, err)
	if broken == nil || broken.Token != two.Token() || broken.Share != backend.Reader {
		s.Errorf("want the second reader broken, got %+v", broken)
	}
	s.lost("Renew of a reader that was broken", two.Renew(s.Context(), time.Hour))
	must(s, one.Renew(s.Context(), time.Hour))
	var locked *backend.LockedError
	if _, err := s.b.Break(s.Context(), s.key, owners[1]); !errors.As(err, &locked) || locked.Holder.Owner != owners[0] {
		s.Errorf("Break of an earlier holder: want the present one, got %v", err)
	}
	two = s.tryShare(backend.Reader)
	broken, err = s.b.Break(s.Context(), s.key, "")
	must(s, err)
	if broken == nil || broken.Token != one.Token() {
		s.Errorf("Break of all: want the first holder, got %+v", broken)
	}
	for _, g := range []backend.Grant{one, two} {
		s.lost("Renew after a break of all", g.Renew(s.Context(), time.Hour))
	}
	must(s, s.try().Release(s.Context()))
}

// firstReader: a writer of a lock that was never used with shares finds a reader behind it.
func firstReader(s *stage) {
	g := s.try()
	got := waitFor(s, s.b, s.share(backend.Reader))
	must(s, g.Release(s.Context()))
	must(s, s.next(got).Release(s.Context()))

	s.key += "-abandoned"
	req := request(s.key, time.Hour)
	_, err := s.b.TryAcquire(s.Context(), req)
	must(s, err)
	got = waitFor(s, s.b, s.share(backend.Reader))
	must(s, s.b.Abandon(s.Context(), req))
	must(s, s.next(got).Release(s.Context()))
}

// manyReaders: one release grants all readers that wait, and its notifications prove it, so that
// no reader has to ask.
func manyReaders(s *stage) {
	const readers = 100
	g := s.try()
	var got []<-chan outcome
	for range readers {
		got = append(got, waitFor(s, s.b, s.share(backend.Reader)))
	}
	writer := waitFor(s, s.b, request(s.key, time.Hour))
	before, err := pgtest.Commands(s.Context(), s.admin)
	must(s, err)
	must(s, g.Release(s.Context()))
	last, held := uint64(0), []backend.Grant(nil)
	for _, ch := range got {
		g := s.next(ch)
		if g.Token() <= last {
			s.Errorf("token %d after %d", g.Token(), last)
		}
		last, held = g.Token(), append(held, g)
	}
	after, err := pgtest.Commands(s.Context(), s.admin)
	must(s, err)
	if cost := after - before; cost > 10 {
		s.Errorf("a release to %d readers: want 2 statements, and a few if the machine is slow, got %d", readers, cost)
	}
	for i, err := range s.b.RenewBatch(s.Context(), func() (all []backend.Renewal) {
		for _, g := range held {
			all = append(all, backend.Renewal{Grant: g, TTL: time.Hour})
		}
		return all
	}()) {
		if err != nil {
			s.Errorf("renewal %d: %v", i, err)
		}
	}
	for _, g := range held {
		must(s, g.Release(s.Context()))
	}
	must(s, s.next(writer).Release(s.Context()))
}

// TestSweepOfShares: a name whose last holder expired long ago is removed, and one with a live
// holder stays. Tokens rise.
func TestSweepOfShares(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	tokens := map[string]uint64{}
	for _, key := range []string{"dead", "alive"} {
		for range 2 {
			req := request(key, time.Hour)
			req.Share = backend.Reader
			g, err := b.TryAcquire(t.Context(), req)
			must(t, err)
			tokens[key] = g.Token()
		}
	}
	sql(t, admin, `UPDATE interlock SET granted = granted - interval '5 hours', expires = expires - interval '5 hours', token = token - 18000000000 WHERE place = 0 AND name <> '';
		UPDATE interlock SET expires = expires - interval '5 hours' WHERE place < -4611686018427387904 AND name = 'lock:dead'`)
	n, err := b.Sweep(t.Context(), time.Hour)
	must(t, err)
	var left int
	must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM interlock WHERE name <> ''").Scan(&left))
	if n != 1 || left != 3 {
		t.Errorf("want one lock removed with its holders, and three rows of the other left, got %d and %d", n, left)
	}
	for key, last := range tokens {
		_, err := b.Break(t.Context(), key, "")
		must(t, err)
		g, err := b.TryAcquire(t.Context(), request(key, time.Second))
		must(t, err)
		if key == "dead" && g.Token() <= last-18000000000 || g.Token() == 0 {
			t.Errorf("token of %s after a sweep: %d after %d", key, g.Token(), last)
		}
	}
}
