package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

func mustRLock(t *testing.T, rw *lock.RWMutex) *lock.Lease {
	t.Helper()
	return mustLock(t, rw.RLocker())
}

func TestInvalidPermits(t *testing.T) {
	c := newClient(t, memlock.New())
	for _, bad := range []struct {
		permits, n int
		names      string
	}{
		{0, 1, "capacity 0"}, {-1, 1, "capacity -1"}, {1025, 1, "capacity 1025"}, {5, 0, "permits 0"}, {5, -1, "permits -1"}, {5, 6, "permits 6"}, {0, 0, "capacity 0"},
	} {
		s := c.Semaphore("k", bad.permits)
		for name, call := range map[string]func(context.Context, int) (*lock.Lease, error){"Acquire": s.Acquire, "TryAcquire": s.TryAcquire} {
			if _, err := call(t.Context(), bad.n); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), bad.names) {
				t.Errorf("%s(%d) of a semaphore of %d: got %v, want ErrInvalid with %q", name, bad.n, bad.permits, err, bad.names)
			}
		}
	}
}

func TestFreePermits(t *testing.T) {
	c := newClient(t, memlock.New())
	s := c.Semaphore("k", 5)
	want := func(when string, want int) {
		t.Helper()
		if n, err := s.Free(t.Context()); err != nil || n != want {
			t.Errorf("%s: want %d free permits, got %d, %v", when, want, n, err)
		}
	}
	want("nothing holds it", 5)
	two, one := mustLock(t, s.Weighted(2)), mustLock(t, s)
	want("two and one are held", 2)
	if err := two.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("one is held", 4)
	if err := one.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]lock.Mutex{"a writer": c.Mutex("k"), "a reader": c.RWMutex("k").RLocker()} {
		l := mustLock(t, m)
		want(name+" holds it", 0)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []*lock.Semaphore{c.Semaphore("k", 0), c.Semaphore("", 5)} {
		_, err := bad.Free(t.Context())
		wantErr(t, "Free", err, lock.ErrInvalid)
	}
	_, err := newClient(t, newFake()).Semaphore("k", 5).Free(t.Context())
	wantErr(t, "Free on a backend without semaphores", err, errors.ErrUnsupported)
}

// A backend that declares no shares gets no request for one.
func TestSharesUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		for _, m := range []lock.Mutex{c.RWMutex("k").RLocker(), c.Semaphore("k", 3).Weighted(2)} {
			_, err := m.Lock(t.Context())
			wantErr(t, "Lock", err, errors.ErrUnsupported)
			_, err = m.TryLock(t.Context())
			wantErr(t, "TryLock", err, errors.ErrUnsupported)
		}
		for _, r := range []backend.Requirement{backend.RequireShared, backend.RequirePermits} {
			_, err := lock.New(newFake(), lock.WithRequire(r))
			wantErr(t, "New with "+r.Name, err, errors.ErrUnsupported)
		}
		if len(f.calls) != 0 {
			t.Errorf("the backend got %v, want nothing", f.calls)
		}
		l := mustLock(t, c.RWMutex("k")) // which is the Mutex of the name
		wantErr(t, "Downgrade", l.Downgrade(t.Context()), errors.ErrUnsupported)
		if err := l.Err(); err != nil {
			t.Errorf("after a Downgrade that is not supported: got %v, want it held", err)
		}
	})
}

// A context under a lease of the same name would wait for itself.
func TestSharesOfOneContext(t *testing.T) {
	c := newClient(t, memlock.New())
	rw, sem := c.RWMutex("rw"), c.Semaphore("sem", 3)
	reader, permit := mustRLock(t, rw), mustLock(t, sem.Weighted(1))
	for what, m := range map[string]struct {
		lock.Mutex
		ctx  context.Context
		says string
	}{
		"an upgrade":           {rw, reader.Context(), "for read, and would wait for itself for exclusive: unlock the lease that it has first"},
		"a second read":        {rw.RLocker(), reader.Context(), "WithReentry allows nesting"},
		"more permits":         {sem.Weighted(2), permit.Context(), "for 1/3, and would wait for itself for 2/3: unlock"},
		"the Mutex of permits": {c.Mutex("sem"), permit.Context(), "for 1/3, and would wait for itself for exclusive: unlock"},
	} {
		_, err := m.Lock(m.ctx)
		if !errors.Is(err, lock.ErrLocked) || !strings.Contains(err.Error(), m.says) {
			t.Errorf("%s: got %v, want ErrLocked with %q", what, err, m.says)
		}
	}
}

func TestNestedShares(t *testing.T) {
	c := newClient(t, memlock.New(), lock.WithReentry())
	rw := c.RWMutex("k")
	w := mustLock(t, rw)
	nested, err := rw.RLock(w.Context()) // a writer may read
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Downgrade(t.Context()); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "1 leases of WithReentry") {
		t.Errorf("Downgrade with a nested lease: got %v, want ErrInvalid", err)
	}
	if err := nested.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := rw.Lock(w.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("Lock under a lease that was downgraded: got %v, want ErrLocked", err)
	}
	if _, err := rw.RLock(w.Context()); err != nil {
		t.Errorf("RLock under a lease that was downgraded: got %v, want a nested lease", err)
	}
}

func TestShareIncludes(t *testing.T) {
	permits := func(k, n int) lock.Share { return lock.Share{Weight: k, Capacity: n} }
	for _, c := range []struct {
		holds, asks lock.Share
		want        bool
	}{
		{lock.Share{}, lock.Share{}, true}, {lock.Share{}, backend.Reader, true}, {lock.Share{}, permits(1, 3), false},
		{backend.Reader, backend.Reader, true}, {backend.Reader, lock.Share{}, false}, {backend.Reader, permits(1, 3), false},
		{permits(2, 3), permits(1, 3), true}, {permits(2, 3), permits(3, 3), false}, {permits(2, 3), permits(1, 4), false},
		{permits(2, 3), lock.Share{}, false}, {permits(1, 3), backend.Reader, false},
	} {
		if got := c.holds.Includes(c.asks); got != c.want {
			t.Errorf("%v includes %v: got %t, want %t", c.holds, c.asks, got, c.want)
		}
	}
}

func TestDowngradeRefused(t *testing.T) {
	c := newClient(t, memlock.New())
	permit, reader := mustLock(t, c.Semaphore("sem", 3).Weighted(1)), mustRLock(t, c.RWMutex("rw"))
	wantErr(t, "Downgrade of permits", permit.Downgrade(t.Context()), lock.ErrInvalid)
	wantErr(t, "Downgrade of a reader", reader.Downgrade(t.Context()), nil)
	both := mustLock(t, lock.All(c.Mutex("a"), c.Mutex("b")))
	wantErr(t, "Downgrade of All", both.Downgrade(t.Context()), lock.ErrInvalid)
	if both.Slots() != nil || reader.Slots() != nil {
		t.Error("a lease that holds no permits has slots")
	}
	w := mustLock(t, c.Mutex("k"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, "Downgrade under a context that has ended", w.Downgrade(ended), context.Canceled)
	if _, err := c.Break(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "Downgrade of a lost lease", w.Downgrade(t.Context()), lock.ErrLost)
	wantErr(t, "Unlock", reader.Unlock(t.Context()), nil)
	wantErr(t, "Downgrade of an unlocked lease", reader.Downgrade(t.Context()), lock.ErrReleased)
}

// Functions of a Mutex work with all shares of a client, and All knows that they are of one lock.
func TestAllOverShares(t *testing.T) {
	c := newClient(t, memlock.New())
	rw, sem := c.RWMutex("rw"), c.Semaphore("sem", 3)
	l := mustLock(t, lock.All(sem.Weighted(2), rw.RLocker(), c.Mutex("m")))
	if got := l.Name(); got != "m+rw+sem" {
		t.Errorf("name %q, want m+rw+sem", got)
	}
	if got := l.Parts()[2].Slots(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("slots %v, want [0 1]", got)
	}
	if err := lock.Do(t.Context(), rw.RLocker(), func(context.Context) error { return nil }); err != nil {
		t.Errorf("a reader beside that of All: got %v, want nil", err)
	}
	for _, twice := range []lock.Mutex{lock.All(rw, rw.RLocker()), lock.All(sem, sem.Weighted(2)), lock.All(c.Mutex("rw"), rw)} {
		_, err := twice.TryLock(t.Context())
		wantErr(t, "All of two shares of one lock", err, lock.ErrInvalid)
	}
}

// With local hand-off shares are requested from the backend, with tokens that fit those of the
// writers.
func TestSharesWithLocalHandOff(t *testing.T) {
	space := memlock.NewSpace()
	c := newClient(t, space.Backend(), lock.WithLocalHandOff())
	rw := c.RWMutex("k")
	var last uint64
	rises := func(l *lock.Lease) {
		t.Helper()
		token, _ := l.Token()
		if token <= last {
			t.Errorf("token %d after %d", token, last)
		}
		last = token
	}
	w := mustLock(t, rw)
	rises(w)
	if err := w.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := rw.RLock(t.Context())
	if err != nil {
		t.Fatal("a reader beside a former writer:", err)
	}
	rises(r)
	_, err = rw.TryLock(t.Context())
	wantErr(t, "a writer beside two readers", err, lock.ErrLocked)
	info, err := c.Inspect(t.Context(), "k")
	if err != nil || len(info.Others) != 1 || info.Others[0].Token != last || info.Others[0].Owner != r.Owner() {
		t.Errorf("Inspect: got %+v, %v, want the reader with token %d", info, err, last)
	}
	if owner, token := r.BackendHold(); owner != r.Owner() || token != last/256 {
		t.Errorf("BackendHold %s, %d, want that of the reader", owner, token)
	}
	for _, l := range []*lock.Lease{w, r} {
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rises(mustLock(t, rw))
}

func TestShareOfEvents(t *testing.T) {
	var got []string
	o := &lock.Observer{
		Acquired: func(_ context.Context, e lock.Event) { got = append(got, "acquired "+e.Share.String()) },
		Failed:   func(_ context.Context, e lock.Event) { got = append(got, "failed "+e.Share.String()) },
		Released: func(_ context.Context, e lock.Event) { got = append(got, "released "+e.Share.String()) },
	}
	c := newClient(t, memlock.New(), lock.WithObserver(o))
	l := mustLock(t, c.Semaphore("k", 3).Weighted(2))
	_, err := c.RWMutex("k").TryRLock(t.Context())
	wantErr(t, "TryRLock beside permits", err, lock.ErrLocked)
	_, err = c.Mutex("k").TryLock(t.Context())
	wantErr(t, "TryLock beside permits", err, lock.ErrLocked)
	wantErr(t, "Unlock", l.Unlock(t.Context()), nil)
	if want := "[acquired 2/3 failed read failed exclusive released 2/3]"; fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
}

// A share is renewed and expires as any lease.
func TestSharesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		c, other := newClient(t, space.Backend(), lock.WithTTL(time.Second)), newClient(t, space.Backend())
		kept := mustLock(t, c.Semaphore("k", 2).Weighted(1))
		fixed := mustLock(t, c.Semaphore("k", 2, lock.WithoutRenewal()).Weighted(1))
		time.Sleep(time.Minute)
		if kept.Err() != nil || !errors.Is(fixed.Err(), lock.ErrLost) {
			t.Errorf("after a minute: got %v and %v, want nil and ErrLost", kept.Err(), fixed.Err())
		}
		if got := mustLock(t, other.Semaphore("k", 2).Weighted(1)).Slots(); !slices.Equal(got, []int{1}) {
			t.Errorf("slots %v, want those of the lease that expired, [1]", got)
		}
	})
}
