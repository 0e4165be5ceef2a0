package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var permitCases = []Case{
	{
		ID:     "shared/45-permits",
		Title:  "permits are granted up to the capacity and not beyond; the Mutex of the name takes all of them",
		Clause: "The weights that are held at a time are at most the capacity.",
		needs:  []need{needPermits},
		run:    permitsUpToCapacity,
	},
	{
		ID:     "shared/45-many-workers",
		Title:  "16 workers of 4 clients with requests of 1 to 3 permits of 4: never more than 4 held, all get their turn",
		Clause: "The weights that are held at a time are at most the capacity, and every waiter is served in the end.",
		needs:  []need{needPermits},
		alone:  true,
		run:    permitsOfMany,
	},
	{
		ID:     "shared/45-large-request",
		Title:  "a request for many permits is not overtaken by smaller ones that would fit",
		Clause: "The head of the queue is granted as soon as it fits, and a request behind one that does not fit waits.",
		needs:  []need{needPermits, declared(backend.RequireFIFO), needQueue},
		run:    largeRequest,
	},
	{
		ID:     "shared/45-slots",
		Title:  "slots are the lowest free ones, and no two holders have the same",
		Clause: "Slots returns the lowest permits that were free when the grant was made.",
		needs:  []need{needPermits},
		run:    slots,
	},
}

func permitsUpToCapacity(t *T) {
	key := t.key("permits")
	a, b := t.client().Semaphore(key, 5), t.client().Semaphore(key, 5)
	acquire := func(s *lock.Semaphore, n int) *lock.Lease {
		l, err := s.TryAcquire(t.ctx, n)
		if err != nil {
			t.fatalf("TryAcquire of %d permits that are free: want a grant, got %v", n, err)
		}
		return l
	}
	l1, l2 := acquire(a, 2), acquire(b, 2)
	t.refused(a.Weighted(2), "2 permits where 1 of 5 is free")
	l3 := acquire(a, 1)
	for _, m := range []lock.Mutex{a.Weighted(1), b.Weighted(5), t.client().Mutex(key)} {
		t.refused(m, "a request where no permit is free")
	}
	t.mustUnlock(l2, "a holder of 2")
	t.refused(b.Weighted(3), "3 permits where 2 of 5 are free")
	t.refused(t.client().Mutex(key), "the Mutex of the name beside 3 permits")
	l2 = acquire(b, 2)
	for _, l := range []*lock.Lease{l1, l3, l2} {
		t.mustUnlock(l, "a holder of permits")
	}
	all := t.mustLock(b.Weighted(5), "all permits")
	t.refused(a.Weighted(1), "a permit where one lease has all")
	t.mustUnlock(all, "the holder of all permits")
	m := t.mustLock(t.client().Mutex(key), "the Mutex of the name when no permit is held")
	t.refused(a.Weighted(1), "a permit beside the Mutex")
	t.mustUnlock(m, "the Mutex")
	t.free(t.client(), key, "after a semaphore", t.slack())
}

func permitsOfMany(t *T) {
	const clients, workersEach, capacity = 4, 4, 4
	key := t.key("many-permits")
	turns := t.rounds(5, 50)
	var used, worst, served atomic.Int64
	var owned [capacity]atomic.Int64 // by slot
	ctx, cancel := context.WithTimeout(t.ctx, 90*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range clients {
		s := t.client().Semaphore(key, capacity)
		for range workersEach {
			wg.Go(func() {
				for range turns {
					n := 1 + rand.IntN(3)
					l, err := s.Acquire(ctx, n)
					if err != nil {
						t.errorf("Acquire of %d permits: want its turn within 90s, got %v", n, err)
						return
					}
					now := used.Add(int64(n))
					for w := worst.Load(); now > w && !worst.CompareAndSwap(w, now); w = worst.Load() {
					}
					slots := l.Slots()
					if len(slots) != n || slices.Min(slots) < 0 || slices.Max(slots) >= capacity {
						t.errorf("slots of %d permits of %d: want %d from 0 to %d, got %v", n, capacity, n, capacity-1, slots)
						return
					}
					for _, i := range slots {
						if others := owned[i].Add(1); others != 1 {
							t.errorf("slot %d: want one holder, there were %d", i, others)
						}
					}
					time.Sleep(rand.N(300 * time.Microsecond)) // the work
					for _, i := range slots {
						owned[i].Add(-1)
					}
					used.Add(-int64(n))
					served.Add(1)
					if err := l.Unlock(ctx); err != nil {
						t.errorf("Unlock of %d permits: want nil, got %v", n, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if w := worst.Load(); w > capacity {
		t.errorf("permits held at the same time: want at most %d, were %d", capacity, w)
	}
	if n := served.Load(); n != int64(clients*workersEach*turns) && !t.failed() {
		t.errorf("turns: want %d, were %d", clients*workersEach*turns, n)
	}
}

func largeRequest(t *T) {
	key := t.key("large")
	s := t.client().Semaphore(key, 4)
	three := t.mustLock(s.Weighted(3), "3 of 4 free permits")
	got := t.queueShares(key, permits(3, 4), permits(1, 4), permits(1, 4))
	t.refused(s.Weighted(1), "TryAcquire of a free permit, with others waiting")
	t.stillWaits("where 1 of 4 is free", got...)
	t.mustUnlock(three, "the holder of 3")
	large, small := t.granted(t.slack(), "the large request", got[0]).lease, t.granted(t.slack(), "the small one that fits beside it", got[1]).lease
	t.stillWaits("where none is free", got[2:]...)
	t.mustUnlock(large, "the large request")
	last := t.granted(t.slack(), "the last one", got[2]).lease
	t.mustUnlock(small, "a small request")
	t.mustUnlock(last, "a small request")
	t.free(t.client(), key, "after a semaphore", t.slack())
}

func slots(t *T) {
	key := t.key("slots")
	s := t.client().Semaphore(key, 6)
	take := func(n int, want ...int) *lock.Lease {
		l := t.mustLock(s.Weighted(n), fmt.Sprintf("%d permits", n))
		if got := l.Slots(); !slices.Equal(got, want) {
			t.errorf("slots of a grant of %d permits: want %v, got %v", n, want, got)
		}
		return l
	}
	a, b, c := take(2, 0, 1), take(1, 2), take(2, 3, 4)
	t.mustUnlock(a, "the holder of 0 and 1")
	d := take(1, 0)
	e := take(2, 1, 5)
	if _, ok := t.probe.(backend.Waiter); ok {
		got := t.queueShares(key, permits(1, 6), permits(2, 6))
		t.mustUnlock(b, "the holder of 2")
		f := t.granted(t.slack(), "a waiter for one permit", got[0]).lease
		t.mustUnlock(c, "the holder of 3 and 4")
		g := t.granted(t.slack(), "a waiter for two permits", got[1]).lease
		if got := fmt.Sprint(f.Slots(), g.Slots()); got != "[2] [3 4]" {
			t.errorf("slots of two waiters: want those that became free, [2] [3 4], got %s", got)
		}
		b, c = f, g
	}
	for _, l := range []*lock.Lease{b, c, d, e} {
		t.mustUnlock(l, "a holder of slots")
	}
	if l := t.mustLock(t.client().Mutex(key), "the Mutex of the name"); l.Slots() != nil {
		t.errorf("slots of a Mutex: want none, got %v", l.Slots())
	}
}
