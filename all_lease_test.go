package lock_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
)

func TestAllEndsWithAnyPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fa, fb := newFake(), newFake()
		a, b := newClient(t, fa, lock.WithTTL(time.Minute)), newClient(t, fb, lock.WithTTL(10*time.Second))
		l := mustLock(t, lock.All(a.Mutex("a"), b.Mutex("b")))
		granted := time.Now()
		fb.mu.Lock()
		fb.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" {
				return errNet, false
			}
			return nil, true
		}
		fb.mu.Unlock()
		<-l.Done()
		if after := time.Since(granted); after >= 10*time.Second {
			t.Errorf("learned after %v, when another could hold the part", after)
		}
		wantErr(t, "Err", l.Err(), lock.ErrLost, errNet)
		wantErr(t, "cause", context.Cause(l.Context()), lock.ErrLost)
		wantErr(t, "Check", l.Check(t.Context()), lock.ErrLost)
		wantErr(t, "Extend", l.Extend(t.Context(), time.Minute), lock.ErrLost)
		time.Sleep(5 * time.Minute)
		if fa.holder("a") == "" {
			t.Error("the other part is not held until Unlock")
		}
		err := l.Unlock(t.Context())
		wantErr(t, "Unlock", err, lock.ErrLost)
		if fa.holder("a") != "" {
			t.Error("Unlock after a loss left the other part held")
		}
		if again := l.Unlock(t.Context()); again != err {
			t.Errorf("the second Unlock returned %v", again)
		}
	})
}

// A process that was stopped finds the whole over at its first look.
func TestAllLooksAtTheClockOfEachPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFake(), lock.WithTTL(10*time.Second))
		for _, look := range []func(*lock.Lease) error{
			(*lock.Lease).Err,
			func(l *lock.Lease) error { return l.Context().Err() },
			func(l *lock.Lease) error { return l.Check(t.Context()) },
			func(l *lock.Lease) error { return l.Unlock(t.Context()) },
		} {
			l := mustLock(t, lock.All(c.Mutex("a"), c.Mutex("b")))
			l.Parts()[1].StopTimer()
			time.Sleep(10 * time.Second)
			if look(l) == nil {
				t.Error("a part has expired, and no loss was reported")
			}
			wantErr(t, "Err", l.Err(), lock.ErrLost)
			_ = l.Unlock(t.Context())
		}
	})
}

func TestAllBeginsAgainWhenAPartIsLostInTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("b", "other", time.Hour)
		c := newClient(t, f, lock.WithTTL(time.Hour))
		time.AfterFunc(10*time.Second, func() {
			f.mu.Lock()
			f.keys["a"].owner = "thief" // broken, and granted to another client
			f.keys["a"].expires = time.Now().Add(time.Minute)
			lost := slices.Collect(maps.Values(f.onLost)) // of a alone: b has never been granted
			f.mu.Unlock()
			for _, onLost := range lost {
				onLost(lock.ErrLost)
			}
		})
		time.AfterFunc(75*time.Second, func() {
			if h := f.holder("a"); h == "" || h == "thief" {
				t.Errorf("a is held by %q: it is not taken again while b is waited for", h)
			}
		})
		l, err := lock.All(c.Mutex("a"), c.Mutex("b")).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Parts() {
			if f.holder(p.Name()) != p.Owner() {
				t.Errorf("%s is not ours", p.Name())
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// One that is lost in the very moment in which the last is granted.
func TestAllBeginsAgainWhenAPartIsLostAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		grants := 0
		c := newClient(t, f, lock.WithObserver(&lock.Observer{Acquired: func(_ context.Context, e lock.Event) {
			if grants++; e.Name == "b" && grants == 2 {
				f.take("a", "thief", time.Minute)
				time.Sleep(20 * time.Second) // in which it is notified
			}
		}}))
		m := lock.All(c.Mutex("a"), c.Mutex("b"))
		l, err := m.Lock(t.Context())
		if err != nil || l.Err() != nil || grants != 4 {
			t.Fatalf("%v after %d grants: %v", l, grants, err)
		}
		_ = l.Unlock(t.Context())
		grants = 0
		_, err = m.TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrLost)
		if f.holder("b") != "" {
			t.Error("b is still held")
		}
	})
}

func TestAllFreesTheRestWhateverComesOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fa, fb := newFake(), newFake()
		a, b := newClient(t, fa, lock.WithTTL(time.Minute)), newClient(t, fb, lock.WithTTL(time.Minute))
		l := mustLock(t, lock.All(a.Mutex("a"), b.Mutex("b"), b.Mutex("c"), a.Mutex("d")))
		fb.mu.Lock()
		fb.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op != "release" {
				return nil, true
			}
			<-ctx.Done()
			return lock.ErrUncertain, false
		}
		fb.mu.Unlock()
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			if fa.holder("a") != "" || fa.holder("d") != "" {
				t.Error("what can be freed has to wait for what cannot")
			}
		})
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrUncertain)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Unlock took %v", took)
		}
	})
}

func TestAllLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		l := mustLock(t, lock.All(c.Mutex("long", lock.WithTTL(time.Minute)), c.Mutex("a+b", lock.WithTTL(10*time.Second))))
		if l.Name() != `a\+b+long` || l.Owner() != "" {
			t.Errorf("name %q, owner %q", l.Name(), l.Owner())
		}
		if _, ok := l.Token(); ok {
			t.Error("a token")
		}
		ps := l.Parts()
		if len(ps) != 2 || ps[0].Name() != "a+b" || ps[1].Name() != "long" {
			t.Fatalf("parts %v", ps)
		}
		t0, _ := ps[0].Token()
		t1, _ := ps[1].Token()
		if t0 == 0 || t1 == 0 || t0 == t1 || len(ps[0].Parts()) != 1 {
			t.Errorf("tokens %d and %d", t0, t1)
		}
		if !l.Expires().Equal(ps[0].Expires()) || !l.Expires().Before(ps[1].Expires()) {
			t.Errorf("expires %v, parts %v %v", l.Expires(), ps[0].Expires(), ps[1].Expires())
		}
		before := f.count("renew")
		if err := l.Check(t.Context()); err != nil || f.count("renew") != before+2 {
			t.Errorf("Check: %v, %d renewals", err, f.count("renew")-before)
		}
		if err := l.Extend(t.Context(), 2*time.Minute); err != nil || time.Until(l.Expires()) < 119*time.Second {
			t.Errorf("Extend: %v, expires in %v", err, time.Until(l.Expires()))
		}
		wantErr(t, "Extend", l.Extend(t.Context(), time.Millisecond), lock.ErrInvalid)
		_, err := c.Mutex("long").Lock(l.Context())
		wantErr(t, "a part under the context of the whole", err, lock.ErrLocked)
		// unlocking one part ends the whole
		if err := ps[1].Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wantErr(t, "Err", l.Err(), lock.ErrReleased)
		if err := l.Unlock(t.Context()); err != nil || f.holder("a+b") != "" {
			t.Errorf("Unlock: %v", err)
		}
	})
}
