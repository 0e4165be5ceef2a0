package conformance

import (
	"fmt"
	"slices"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

const ownCapacity = "A request is judged by its own capacity: permits of n fit if with them at most n are held, also of another capacity."

var capacityCases = []Case{
	{
		ID:     "shared/45-another-capacity",
		Title:  "permits of another capacity are granted if they fit by their own, with slots that are distinct and within it",
		Clause: ownCapacity,
		needs:  []need{needPermits},
		run:    anotherCapacity,
	},
	{
		ID:     "shared/45-another-capacity-waits",
		Title:  "permits of another capacity wait in the one queue, in the order of arrival, and are granted when enough are free",
		Clause: ownCapacity,
		needs:  []need{needPermits, declared(backend.RequireFIFO), needQueue},
		run:    capacityWaits,
	},
	{
		ID:     "shared/45-readers-and-permits",
		Title:  "readers and permits of one name exclude each other, and wait for each other",
		Clause: "The whole key, readers and permits exclude each other.",
		needs:  []need{needShared, needPermits},
		run:    readersAndPermits,
	},
	{
		ID:     "shared/44-downgrade-before-permits",
		Title:  "permits that wait for a writer wait on when it becomes a reader",
		Clause: "Permits in the queue wait after a downgrade as they would behind any reader.",
		needs:  []need{needShared, needPermits, needQueue},
		run:    downgradeBeforePermits,
	},
}

// tryPermits acquires permits that must be free, with these slots.
func (t *T) tryPermits(key string, s lock.Share, what string, want ...int) *lock.Lease {
	l := t.mustLock(shareOf(t.client(), key, s), fmt.Sprintf("%s permits %s", s, what))
	if got := l.Slots(); !slices.Equal(got, want) {
		t.errorf("slots of %s permits %s: want %v, got %v", s, what, want, got)
	}
	return l
}

func anotherCapacity(t *T) {
	key := t.key("capacity")
	refused := func(s lock.Share, what string) {
		t.refused(shareOf(t.client(), key, s), fmt.Sprintf("%s permits %s", s, what))
	}
	low := t.tryPermits(key, permits(4, 8), "of a free key", 0, 1, 2, 3)
	refused(permits(1, 4), "where 4 are held")
	refused(permits(3, 6), "where 4 are held")
	high := t.tryPermits(key, permits(1, 6), "where 4 are held", 4)
	refused(permits(1, 5), "where 5 are held")
	t.mustUnlock(low, "the holder of 4/8")
	// The slot of 1/6 is no slot of 3, but it counts.
	refused(permits(3, 3), "where 1 is held")
	small := t.tryPermits(key, permits(2, 3), "where 1 is held", 0, 1)
	refused(permits(1, 3), "where 3 are held")
	last := t.tryPermits(key, permits(5, 8), "where 3 are held", 2, 3, 5, 6, 7)
	refused(permits(1, 8), "where 8 are held")
	t.refused(t.client().Mutex(key), "the Mutex of the name beside permits")
	for _, l := range []*lock.Lease{high, small, last} {
		t.mustUnlock(l, "a holder of permits")
	}
	t.free(t.client(), key, "after permits of several capacities", t.slack())
}

func capacityWaits(t *T) {
	key := t.key("capacity-waits")
	three, one := t.tryPermits(key, permits(3, 4), "of a free key", 0, 1, 2), t.tryPermits(key, permits(1, 4), "where 3 are held", 3)
	got := t.queueShares(key, permits(1, 2), permits(1, 9), permits(2, 3))
	t.refused(t.client().Semaphore(key, 9).Weighted(1), "TryAcquire of 1/9 permits, which fit, with others waiting")
	t.mustUnlock(one, "the holder of 1/4")
	t.stillWaits("where 3 are held and the first waiter wants 1/2", got...)
	t.mustUnlock(three, "the holder of 3/4")
	take := func(i int, what string, want ...int) *lock.Lease {
		l := t.granted(t.slack(), what, got[i]).lease
		if slots := l.Slots(); !slices.Equal(slots, want) {
			t.errorf("slots of %s: want %v, got %v", what, want, slots)
		}
		return l
	}
	first, second := take(0, "the waiter for 1/2", 0), take(1, "the waiter for 1/9", 1)
	t.stillWaits("for 2/3 where 2 are held", got[2:]...)
	t.mustUnlock(first, "the holder of 1/2")
	third := take(2, "the waiter for 2/3", 0, 2)
	t.mustUnlock(second, "the holder of 1/9")
	t.mustUnlock(third, "the holder of 2/3")
	t.free(t.client(), key, "after permits of several capacities", t.slack())
}

func readersAndPermits(t *T) {
	key := t.key("readers-permits")
	_, waits := t.probe.(backend.Waiter)
	r1, r2 := t.mustLock(shareOf(t.client(), key, backend.Reader), "a free key"), t.mustLock(shareOf(t.client(), key, backend.Reader), "a second reader")
	t.refused(shareOf(t.client(), key, permits(1, 5)), "permits beside readers")
	var got []<-chan locked
	if waits {
		got = t.queueShares(key, permits(1, 5), permits(1, 5), backend.Reader, backend.Reader)
	}
	t.mustUnlock(r2, "the second reader")
	t.refused(shareOf(t.client(), key, permits(1, 5)), "permits beside a reader")
	t.mustUnlock(r1, "the first reader")
	if !waits {
		p := t.mustLock(shareOf(t.client(), key, permits(1, 5)), "permits after the readers")
		t.refused(shareOf(t.client(), key, backend.Reader), "a reader beside permits")
		t.mustUnlock(p, "the permits")
		return
	}
	p1, p2 := t.granted(t.slack(), "permits behind readers", got[0]).lease, t.granted(t.slack(), "permits behind readers", got[1]).lease
	t.refused(shareOf(t.client(), key, backend.Reader), "a reader beside permits")
	t.mustUnlock(p2, "the second permit")
	t.refused(shareOf(t.client(), key, backend.Reader), "a reader beside a permit")
	t.stillWaits("beside a permit", got[2:]...)
	t.mustUnlock(p1, "the first permit")
	r1, r2 = t.granted(t.slack(), "a reader behind permits", got[2]).lease, t.granted(t.slack(), "a reader behind permits", got[3]).lease
	t.mustUnlock(r1, "a reader")
	t.mustUnlock(r2, "a reader")
	t.free(t.client(), key, "after readers and permits", t.slack())
}

func downgradeBeforePermits(t *T) {
	key := t.key("downgrade-permits")
	w := t.mustLock(t.client().RWMutex(key), "a free key")
	got := t.queueShares(key, permits(2, 2), backend.Reader)
	if err := w.Downgrade(t.ctx); err != nil {
		t.fatalf("Downgrade of a writer that permits wait for: want nil, got %v", err)
	}
	t.refused(shareOf(t.client(), key, permits(1, 3)), "permits beside the former writer")
	t.refused(shareOf(t.client(), key, backend.Reader), "a reader behind permits that wait")
	t.stillWaits("beside the former writer", got...)
	if err := w.Check(t.ctx); err != nil {
		t.errorf("a writer that became a reader: want it to hold, got %v", err)
	}
	t.mustUnlock(w, "the former writer")
	p := t.granted(t.slack(), "the permits behind the former writer", got[0]).lease
	t.stillWaits("beside permits", got[1:]...)
	t.mustUnlock(p, "the permits")
	t.mustUnlock(t.granted(t.slack(), "the reader behind the permits", got[1]).lease, "the reader")
	t.free(t.client(), key, "after a downgrade", t.slack())
}
