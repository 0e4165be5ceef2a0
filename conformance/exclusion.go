package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var exclusionCases = []Case{
	{
		ID:     "exclusion/01-free-key-granted",
		Title:  "a free key is granted, at once",
		Clause: "TryAcquire and Acquire of a free key are granted.",
		run:    freeKeyGranted,
	},
	{
		ID:     "exclusion/01-keys-independent",
		Title:  "keys are independent: taking B neither waits for A nor releases it",
		Clause: "A grant concerns its own key and no other.",
		run:    keysIndependent,
	},
	{
		ID:     "exclusion/02-second-holder-refused",
		Title:  "a second holder is refused: same mutex, same client, another client",
		Clause: "At most one grant of a key exists at a time; it belongs to an attempt, never to a session, a process or a host.",
		run:    secondHolderRefused,
	},
	{
		ID:     "exclusion/02-other-process",
		Title:  "a second holder in another process is refused",
		Clause: "A lock excludes among all within the declared scope.",
		needs:  []need{needWorker},
		run:    otherProcess,
	},
	{
		ID:     "exclusion/02-foreign-holder",
		Title:  "another program that holds the key by the service's own means excludes, and is not disturbed",
		Clause: "A key that was not taken by this library is held like any other.",
		needs:  []need{needForeignHolder},
		run:    foreignHolder,
	},
	{
		ID:     "exclusion/02-names-the-holder",
		Title:  "what a refusal says of the holder is true",
		Clause: "LockedError describes the holder, as far as it is known; a driver that returns the owner id returns the metadata too.",
		run:    namesTheHolder,
	},
	{
		ID:     "exclusion/03-reacquire-after-release",
		Title:  "a released key can be taken again at once, many times",
		Clause: "Release frees the key before it returns.",
		run:    reacquire,
	},
	{
		ID:     "exclusion/04-parallel-acquirers",
		Title:  "100 at once: never two inside, and all get their turn",
		Clause: "At most one grant of a key exists at a time, and every waiter is served in the end.",
		alone:  true,
		run:    parallelAcquirers,
	},
	{
		ID:     "exclusion/05-counter",
		Title:  "an unsynchronised counter loses nothing: 10 clients, 100 increments",
		Clause: "At most one grant of a key exists at a time.",
		run:    counter,
	},
	{
		ID:     "exclusion/05-stock",
		Title:  "a stock of 100 is not sold twice to two buyers of 60",
		Clause: "At most one grant of a key exists at a time.",
		run:    stock,
	},
	{
		ID:     "exclusion/06-processes-one-killed",
		Title:  "several processes, one of them killed while it holds: the others continue, never two at once",
		Clause: "A killed holder's key is free within its bound, and not before others can know it.",
		needs:  []need{needWorker},
		alone:  true,
		run:    processesOneKilled,
	},
	{
		ID:     "exclusion/07-history-linearizable",
		Title:  "the recorded history of grants and releases is that of one mutex with rising tokens",
		Clause: "Grants and releases of a key take effect one after another, each between its call and its return.",
		alone:  true,
		run:    historyLinearizable,
	},
}

func freeKeyGranted(t *T) {
	c := t.client()
	for _, call := range []struct {
		name string
		f    func(lock.Mutex, context.Context) (*lock.Lease, error)
	}{{"TryLock", lock.Mutex.TryLock}, {"Lock", lock.Mutex.Lock}} {
		var l *lock.Lease
		var err error
		t.within(t.slack(), call.name+" of a free key", func() {
			l, err = call.f(c.Mutex(t.key("free")), t.ctx)
		})
		if err != nil {
			t.fatalf("%s of a free key: want a lease, got %v", call.name, err)
		}
		if err := l.Err(); err != nil {
			t.errorf("%s of a free key: want a lease that is held, its Err is %v", call.name, err)
		}
		t.mustUnlock(l, "the only holder")
	}
}

func keysIndependent(t *T) {
	c1, c2 := t.client(), t.client()
	a, b := t.key("a"), t.key("b")
	la := t.mustLock(c1.Mutex(a), "A, free")
	lb := t.mustLock(c1.Mutex(b), "B while A is held")
	t.refused(c2.Mutex(a), "A, held while B was taken")
	if err := la.Check(t.ctx); err != nil {
		t.errorf("A after B was taken: want Check to say it is held, got %v", err)
	}
	t.mustUnlock(lb, "B")
	t.refused(c2.Mutex(a), "A, held while B was released")
	t.free(c2, b, "B after its release", t.slack())
	t.mustUnlock(la, "A")
	t.free(c2, a, "A after its release", t.slack())
}

func secondHolderRefused(t *T) {
	c1, c2 := t.client(), t.client()
	key := t.key("held")
	m := c1.Mutex(key)
	l := t.mustLock(m, "a free key")
	t.refused(m, "the same mutex again")
	t.refused(c1.Mutex(key), "another mutex of the same client")
	t.refused(c2.Mutex(key), "a mutex of another client")
	t.refused(c1.Mutex(key, lock.WithMetadata("another process")), "the same client under another metadata")

	// An owner that merely begins like the holder's is another owner.
	raw := t.open()
	g := request(key, t.longTTL())
	g.Owner = l.Owner()[:len(l.Owner())-1] + flip(l.Owner()[len(l.Owner())-1])
	t.tryRefused(raw, g, "an owner id that differs from the holder's in its last digit")
	if err := l.Check(t.ctx); err != nil {
		t.errorf("the holder after five refused attempts: want Check to say it holds, got %v", err)
	}
	t.mustUnlock(l, "the holder")
	l2, err := c2.Mutex(key).TryLock(t.ctx)
	if err != nil {
		t.fatalf("the key after its release: want a grant, got %v", err)
	}
	t.refused(m, "the former holder")
	t.mustUnlock(l2, "the second holder")
}

func flip(digit byte) string {
	if digit == '0' {
		return "1"
	}
	return "0"
}

func namesTheHolder(t *T) {
	key := t.key("named")
	raw, other := t.open(), t.open()
	for _, metadata := range []string{`"billing" <7>`, "ünïcode"} { // the second must not be described as the first
		req := request(key, t.longTTL())
		req.Metadata = metadata
		g := t.try(raw, req, "a free key")
		_, err := other.TryAcquire(t.ctx, request(key, t.longTTL()))
		if !errors.Is(err, backend.ErrLocked) {
			t.fatalf("TryAcquire of a held key: want ErrLocked, got %v", err)
		}
		var locked *backend.LockedError
		if errors.As(err, &locked) {
			t.describes(locked.Holder, req, g)
		}
		if err := g.Release(t.ctx); err != nil {
			t.fatalf("Release by the holder: want nil, got %v", err)
		}
	}
}

// describes checks what a LockedError says of the holder.
func (t *T) describes(h backend.Holder, req backend.Request, g backend.Grant) {
	for field, ok := range map[string]bool{
		"Owner":    h.Owner == "" || h.Owner == req.Owner,
		"Metadata": h.Metadata == req.Metadata || h.Metadata == "" && h.Owner == "",
		"Token":    h.Token == 0 || h.Token == g.Token(),
		"Left":     h.Left >= 0 && h.Left <= req.TTL+t.slack(),
		"Foreign":  !h.Foreign,
	} {
		if !ok {
			t.errorf("%s of a LockedError: want that of owner %s with metadata %q, token %d and a TTL of %v, or zero for unknown, got %+v",
				field, req.Owner, req.Metadata, g.Token(), req.TTL, h)
		}
	}
}

func foreignHolder(t *T) {
	key, ttl := t.key("foreign"), t.clampTTL(5*time.Second)
	c := t.client(lock.WithTTL(ttl))
	free, err := t.h.ForeignHolder(t.ctx, key, t.longTTL())
	if err != nil {
		t.fatalf("ForeignHolder: %v", err)
	}
	t.refused(c.Mutex(key), "a key that another program holds")
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	if _, err := c.Mutex(key).Lock(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrLocked) {
		t.errorf("a timed wait for another program: want DeadlineExceeded and ErrLocked, got %v", err)
	}
	if info, err := c.Inspect(t.ctx, key); err == nil && (info.Holder == nil || !info.Holder.Foreign) {
		t.errorf("Inspect of a key that another program holds: want Holder.Foreign, got %+v", info.Holder)
	}
	if err := free(t.ctx); err != nil {
		t.fatalf("freeing the foreign holder: want it undisturbed, got %v", err)
	}
	// It does not hand over, so a waiter may need one TTL to see that it is gone.
	t.mustUnlock(t.granted(ttl+t.slack(), "the key when the other program has gone", t.lockAsync(t.ctx, c.Mutex(key))).lease, "after a foreign holder")
}

func reacquire(t *T) {
	c1, c2 := t.client(), t.client()
	key := t.key("again")
	var last *lock.Lease
	for i := range t.rounds(100, 1000) {
		c := c1
		if i%3 == 2 {
			c = c2
		}
		l, err := c.Mutex(key).TryLock(t.ctx)
		if err != nil {
			t.fatalf("round %d, right after the release: want a grant, got %v", i, err)
		}
		if last != nil && last.Owner() == l.Owner() {
			t.fatalf("round %d: want a fresh owner, got that of the round before, %s", i, l.Owner())
		}
		last = l
		t.mustUnlock(l, fmt.Sprintf("round %d", i))
	}
}

// room notices when two are inside at once.
type room struct {
	in      atomic.Int64
	entered atomic.Int64
	worst   atomic.Int64
}

func (r *room) visit(stay func()) {
	n := r.in.Add(1)
	for w := r.worst.Load(); n > w && !r.worst.CompareAndSwap(w, n); w = r.worst.Load() {
	}
	r.entered.Add(1)
	stay()
	r.in.Add(-1)
}

func (r *room) verify(t *T, want int64) {
	if w := r.worst.Load(); w > 1 {
		t.errorf("inside at the same time: want at most 1, were %d", w)
	}
	if n := r.entered.Load(); n != want {
		t.errorf("turns: want %d, were %d", want, n)
	}
}

func parallelAcquirers(t *T) {
	const workers, clients = 100, 5
	key := t.key("room")
	turns := t.rounds(2, 20)
	var cs []*lock.Client
	for range clients {
		cs = append(cs, t.client())
	}
	var r room
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.ctx, 90*time.Second)
	defer cancel()
	for i := range workers {
		m := cs[i%clients].Mutex(key)
		wg.Go(func() {
			for range turns {
				l, err := m.Lock(ctx)
				if err != nil {
					t.errorf("acquirer %d of %d: want its turn within 90s, got %v", i, workers, err)
					return
				}
				r.visit(func() { time.Sleep(rand.N(200 * time.Microsecond)) }) // the work
				if err := l.Unlock(ctx); err != nil {
					t.errorf("acquirer %d: Unlock: want nil, got %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	r.verify(t, int64(workers*turns))
}

func counter(t *T) {
	const clients, each = 10, 10
	key := t.key("counter")
	var value atomic.Int64 // atomic only so that the race detector is quiet: the increment is not
	var wg sync.WaitGroup
	for i := range clients {
		c := t.client()
		wg.Go(func() {
			for range each {
				err := lock.Do(t.ctx, c.Mutex(key), func(context.Context) error {
					v := value.Load()
					time.Sleep(rand.N(time.Millisecond)) // widens the gap between read and write
					value.Store(v + 1)
					return nil
				})
				if err != nil {
					t.errorf("client %d: Do: want nil, got %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if v := value.Load(); v != clients*each {
		t.errorf("counter after %d increments under the lock: want %d, got %d", clients*each, clients*each, v)
	}
}

func stock(t *T) {
	for round := range t.rounds(10, 100) {
		key := t.key("stock")
		var left, sold atomic.Int64
		left.Store(100)
		var wg sync.WaitGroup
		for range 2 {
			c := t.client()
			wg.Go(func() {
				err := lock.Do(t.ctx, c.Mutex(key), func(context.Context) error {
					if have := left.Load(); have >= 60 {
						time.Sleep(2 * time.Millisecond) // both would have read by now
						left.Store(have - 60)
						sold.Add(1)
					}
					return nil
				})
				if err != nil {
					t.errorf("round %d: Do: want nil, got %v", round, err)
				}
			})
		}
		wg.Wait()
		if sold.Load() != 1 || left.Load() != 40 {
			t.fatalf("round %d: want one buyer served and 40 left, were %d served and %d left", round, sold.Load(), left.Load())
		}
	}
}

// holdRaw takes a key by a raw grant, without renewal.
func (t *T) holdRaw(b backend.Backend, key string, ttl time.Duration) (backend.Request, backend.Grant) {
	req := request(key, ttl)
	t.endsAfter(ttl, key)
	return req, t.try(b, req, "a free key")
}
