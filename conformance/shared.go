package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var sharedCases = []Case{
	{
		ID:     "shared/43-readers-share",
		Title:  "readers hold a lock together; a writer, which is the Mutex of the name, excludes them and is excluded",
		Clause: "A reader's request is granted while no exclusive grant holds the key, however many readers do.",
		needs:  []need{needShared},
		run:    readersShare,
	},
	{
		ID:     "shared/43-foreign-holder",
		Title:  "another program that holds the key by the service's own means excludes readers and permits",
		Clause: "A key that was not taken by this library is held like any other.",
		needs:  []need{needShared, needPermits, needForeignHolder},
		run:    foreignExcludesShares,
	},
	{
		ID:     "shared/43-fifo",
		Title:  "a waiting writer stops later readers; readers behind each other are granted together, by one release",
		Clause: "The head of the queue is granted as soon as it fits, and a request behind one that does not fit waits.",
		needs:  []need{needShared, declared(backend.RequireFIFO), needQueue},
		run:    fifoOfShares,
	},
	{
		ID:     "shared/43-cancelled-writer",
		Title:  "a writer that gives up no longer stops the readers behind it",
		Clause: "A cancelled waiter leaves the queue, and the head is granted as soon as it fits.",
		needs:  []need{needShared, needQueue},
		run:    cancelledWriter,
	},
	{
		ID:     "shared/43-tokens-rise",
		Title:  "the tokens of readers, writers and permits of a name rise together",
		Clause: "Token is greater than that of every earlier grant of the same key, of any share.",
		needs:  []need{needShared, needPermits, declared(backend.RequireFencing)},
		run:    tokensOfShares,
	},
	{
		ID:     "shared/44-inspect",
		Title:  "Inspect and List show all holders with their shares and slots, and the shares of the waiters",
		Clause: "Info.Holder and Info.Others are the holders in the order of their tokens.",
		needs:  []need{needShared, needPermits, needInspect, needList},
		run:    inspectShares,
	},
	{
		ID:     "shared/44-history-linearizable",
		Title:  "the recorded history of readers, writers and permits is that of one queue with a capacity and rising tokens",
		Clause: "Grants and releases of a key take effect one after another, each between its call and its return.",
		needs:  []need{needShared, needPermits},
		alone:  true,
		run:    sharedHistory,
	},
}

// needShare is met by a driver that declares a share. Another one must refuse it.
func needShare(r backend.Requirement, s lock.Share) need {
	d := declared(r)
	return need{r.Name, func(t *T) (Status, string) {
		status, why := d.check(t)
		if status == NotDeclared {
			l, err := shareOf(t.client(), t.key("undeclared"), s).TryLock(t.ctx)
			if !errors.Is(err, errors.ErrUnsupported) {
				return Failed, fmt.Sprintf("%s is not declared; want a lock of the share %s refused with errors.ErrUnsupported, got %v, %v", r.Name, s, l, err)
			}
		}
		return status, why
	}}
}

var (
	needShared  = needShare(backend.RequireShared, backend.Reader)
	needPermits = needShare(backend.RequirePermits, lock.Share{Weight: 1, Capacity: 2})
)

// shareOf returns the lock of a share of a name.
func shareOf(c *lock.Client, name string, s lock.Share, opts ...lock.MutexOption) lock.Mutex {
	switch {
	case s.Exclusive():
		return c.Mutex(name, opts...)
	case s == backend.Reader:
		return c.RWMutex(name, opts...).RLocker()
	}
	return c.Semaphore(name, s.Capacity, opts...).Weighted(s.Weight)
}

// permits returns the share of k permits of n.
func permits(k, n int) lock.Share { return lock.Share{Weight: k, Capacity: n} }

func readersShare(t *T) {
	key := t.key("readers")
	var readers []*lock.Lease
	c := t.client()
	for i := range 3 {
		rw := t.client().RWMutex(key)
		rlock := rw.TryRLock
		if i == 1 {
			rlock = rw.RLock
		}
		l, err := rlock(t.ctx)
		if err != nil {
			t.fatalf("reader %d beside %d others: want a grant, got %v", i, i, err)
		}
		readers = append(readers, l)
	}
	t.refused(c.RWMutex(key), "a writer beside three readers")
	for i, l := range readers {
		t.refused(c.Mutex(key), fmt.Sprintf("the Mutex of the name beside %d readers", 3-i))
		if err := l.Check(t.ctx); err != nil {
			t.errorf("reader %d, with a refused writer: want it to hold, got %v", i, err)
		}
		t.mustUnlock(l, fmt.Sprintf("reader %d", i))
	}
	for _, w := range []lock.Mutex{c.Mutex(key), c.RWMutex(key)} {
		l := t.mustLock(w, "a writer when all readers have left")
		t.refused(t.client().RWMutex(key).RLocker(), "a reader beside a writer")
		t.refused(c.RWMutex(key), "a second writer")
		t.mustUnlock(l, "the writer")
	}
	t.mustUnlock(t.mustLock(c.RWMutex(key).RLocker(), "a reader after a writer"), "the last reader")
	t.free(c, key, "after readers and writers", t.slack())
}

func foreignExcludesShares(t *T) {
	key := t.key("foreign-shares")
	c := t.client(lock.WithTTL(t.clampTTL(5 * time.Second)))
	free, err := t.h.ForeignHolder(t.ctx, key, t.longTTL())
	if err != nil {
		t.fatalf("ForeignHolder: %v", err)
	}
	for _, s := range []lock.Share{backend.Reader, permits(1, 3)} {
		t.refused(shareOf(c, key, s), fmt.Sprintf("the share %s of a key that another program holds", s))
	}
	if err := free(t.ctx); err != nil {
		t.fatalf("freeing the foreign holder: want it undisturbed, got %v", err)
	}
	for _, s := range []lock.Share{backend.Reader, permits(1, 3)} {
		t.mustUnlock(t.mustLock(shareOf(c, key, s), fmt.Sprintf("the share %s when the other program has gone", s)), "a share")
	}
}

// queueShares makes waiters for shares of a key wait one after the other.
func (t *T) queueShares(key string, shares ...lock.Share) []<-chan locked {
	return t.queueSharesOf([]*waiter{t.waiter(), t.waiter()}, key, shares...)
}

// queueSharesOf is queueShares with clients that are open already.
func (t *T) queueSharesOf(ws []*waiter, key string, shares ...lock.Share) (got []<-chan locked) {
	for i, s := range shares {
		w := ws[i%len(ws)]
		got = append(got, t.waiting(t.ctx, w, shareOf(w.c, key, s), fmt.Sprintf("waiter %d for %s", i, s)))
	}
	return got
}

// stillWaits checks that none of the waiters has been granted its share.
func (t *T) stillWaits(what string, chs ...<-chan locked) {
	for i, ch := range chs {
		select {
		case got := <-ch:
			t.fatalf("%s: want waiter %d of the rest to wait, got %s, %v", what, i, leaseText(got.lease), got.err)
		default:
		}
	}
}

func fifoOfShares(t *T) {
	key := t.key("fifo-shares")
	c, exclusive := t.client(), lock.Share{}
	first := t.mustLock(c.Mutex(key), "a free key")
	got := t.queueShares(key, backend.Reader, backend.Reader, exclusive, backend.Reader, backend.Reader, exclusive)
	take := func(i int) *lock.Lease {
		return t.granted(t.slack(), fmt.Sprintf("waiter %d", i), got[i]).lease
	}
	t.mustUnlock(first, "the first holder")
	r0, r1 := take(0), take(1)
	t.refused(c.RWMutex(key).RLocker(), "TryRLock beside readers, with a writer waiting")
	t.mustUnlock(r0, "the first of two readers")
	t.refused(c.RWMutex(key).RLocker(), "TryRLock beside one reader, with a writer waiting")
	t.stillWaits("beside a reader", got[2:]...)
	t.mustUnlock(r1, "the last reader before a writer")
	w := take(2)
	t.stillWaits("beside a writer", got[3:]...)
	t.mustUnlock(w, "the writer")
	r3, r4 := take(3), take(4)
	t.stillWaits("beside two readers", got[5:]...)
	t.mustUnlock(r3, "a reader")
	t.mustUnlock(r4, "a reader")
	t.mustUnlock(take(5), "the last writer")
	t.free(c, key, "after readers and writers", t.slack())
}

func cancelledWriter(t *T) {
	key := t.key("cancelled-writer")
	r := t.mustLock(t.client().RWMutex(key).RLocker(), "a free key")
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	writer := t.lockWaiting(ctx, t.waiter(), key)
	behind := t.queueShares(key, backend.Reader)
	cancel()
	if got := t.end(t.slack(), "the cancelled writer", writer); !errors.Is(got.err, context.Canceled) {
		t.fatalf("the cancelled writer: want context.Canceled, got %v", got.err)
	}
	l := t.granted(t.slack(), "a reader behind a writer that gave up, beside a reader", behind[0]).lease
	t.mustUnlock(l, "the second reader")
	t.mustUnlock(r, "the first reader")
	t.free(t.client(), key, "after a cancelled writer", t.slack())
}

func tokensOfShares(t *T) {
	key := t.key("tokens-shares")
	s := &ladder{t: t, key: key}
	c := t.client()
	for range 3 {
		for _, share := range []lock.Share{backend.Reader, {}, permits(1, 3), backend.Reader} {
			l := t.mustLock(shareOf(c, key, share), "a free key")
			s.step(l, "the share "+share.String())
			if share == backend.Reader {
				second := t.mustLock(shareOf(t.client(), key, share), "a second reader")
				s.step(second, "a second reader")
				t.mustUnlock(second, "the second reader")
			}
			t.mustUnlock(l, "the share "+share.String())
		}
	}
}

func inspectShares(t *T) {
	key := t.key("inspect-shares")
	c := t.client()
	a := t.mustLock(c.Semaphore(key, 5, lock.WithMetadata("first")).Weighted(2), "a free key")
	b := t.mustLock(t.client().Semaphore(key, 5, lock.WithMetadata("second")).Weighted(1), "permits that are free")
	var got []<-chan locked
	if _, ok := t.probe.(backend.Waiter); ok {
		got = t.queueShares(key, permits(4, 5), lock.Share{})
	}
	info, err := c.Inspect(t.ctx, key)
	if err != nil {
		t.fatalf("Inspect of a semaphore: want its holders, got %v", err)
	}
	for _, info := range []lock.Info{info, t.listed(c, key)} {
		switch {
		case info.Holder == nil || len(info.Others) != 1:
			t.fatalf("a semaphore with two holders: want both, got %+v", info)
		case info.Holder.Owner != a.Owner() || info.Holder.Share != permits(2, 5) || info.Holder.Metadata != "first":
			t.errorf("the holder with the lowest token: want owner %s with 2/5, got %+v", a.Owner(), info.Holder)
		case info.Others[0].Owner != b.Owner() || info.Others[0].Share != permits(1, 5) || info.Others[0].Metadata != "second":
			t.errorf("the other holder: want owner %s with 1/5, got %+v", b.Owner(), info.Others[0])
		case fmt.Sprint(info.Holder.Slots, info.Others[0].Slots) != "[0 1] [2]":
			t.errorf("slots: want [0 1] and [2], got %v and %v", info.Holder.Slots, info.Others[0].Slots)
		}
	}
	if got != nil && (len(info.Waiters) != 2 || info.Waiters[0].Share != permits(4, 5) || !info.Waiters[1].Share.Exclusive()) {
		t.errorf("waiters: want one for 4/5 and an exclusive one, got %+v", info.Waiters)
	}
	if _, err := c.Semaphore(key, 5).TryAcquire(t.ctx, 3); !errors.Is(err, lock.ErrLocked) || strings.Contains(err.Error(), "foreign") {
		t.errorf("TryAcquire of 3 permits beside 3 of 5: want ErrLocked by a client of this library, got %v", err)
	}
	t.mustUnlock(a, "the first holder")
	t.mustUnlock(b, "the second holder")
	for i, ch := range got {
		t.mustUnlock(t.granted(t.slack(), fmt.Sprintf("waiter %d", i), ch).lease, "a waiter")
	}
}

// listed returns what List yields of a key.
func (t *T) listed(c *lock.Client, key string) (found lock.Info) {
	for info, err := range c.List(t.ctx) {
		if err != nil {
			t.fatalf("List: want nil, got %v", err)
		}
		if info.Name == key {
			found = info
		}
	}
	return found
}
