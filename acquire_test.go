package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func TestContextThatHasEndedSendsNothing(t *testing.T) {
	f := newFake()
	c := newClient(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("shutting down")
	cancel(why)
	for _, lockIt := range []func(context.Context) (*lock.Lease, error){c.Mutex("k").Lock, c.Mutex("k").TryLock} {
		l, err := lockIt(ctx)
		if l != nil {
			t.Fatal("a lease under a dead context")
		}
		wantErr(t, "lock under a dead context", err, context.Canceled, why)
	}
	if n := f.count("acquire"); n != 0 {
		t.Fatalf("%d requests were sent", n)
	}
}

func TestTryLockNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "other", time.Minute)
		_, err := newClient(t, f).Mutex("k").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrLocked)
		var locked *lock.LockedError
		if !errors.As(err, &locked) || locked.Holder.Owner != "other" || locked.Holder.Left != time.Minute {
			t.Fatalf("the holder is not in %#v", err)
		}
		const want = `lock "k" on fake: locked by "stranger", token 1, 1m0s left`
		if err.Error() != want {
			t.Fatalf("got  %s\nwant %s", err, want)
		}
	})
}

func TestTimedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "other", time.Minute)
		var events []string
		c := newClient(t, f, lock.WithObserver(&lock.Observer{
			Waiting: func(_ context.Context, e lock.Event) { events = append(events, "waiting") },
			Failed:  func(_ context.Context, e lock.Event) { events = append(events, "failed after "+e.Wait.String()) },
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("k").Lock(ctx)
		if took := time.Since(start); took != 5*time.Second {
			t.Fatalf("a wait of 5s took %v", took)
		}
		wantErr(t, "Lock", err, context.DeadlineExceeded, lock.ErrLocked)
		wantNot(t, "Lock", err, lock.ErrUncertain)
		if !strings.Contains(err.Error(), "stranger") {
			t.Fatalf("%q does not say who holds the lock", err)
		}
		if got := strings.Join(events, ", "); got != "waiting, failed after 5s" {
			t.Fatalf("events: %s", got)
		}
	})
}

func TestPollingTakesTheLockSoonAfterItIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "other", 3*time.Second)
		start := time.Now()
		l, err := newClient(t, f).Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 3*time.Second+10*time.Millisecond {
			t.Fatalf("granted %v after the start though the holder's lease said 3s", took)
		}
		if n := f.count("acquire"); n > 40 {
			t.Fatalf("%d attempts in 3s", n)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaiterRidesOutAnOutageButNotAtItsFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(_ context.Context, op string, n int) (error, bool) { return errNet, false }
		c := newClient(t, f, lock.WithTTL(ttl))
		_, err := c.Mutex("k").Lock(t.Context())
		wantErr(t, "Lock on a service that is away", err, errNet)

		f.take("k", "other", 8*time.Second)
		start := time.Now()
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if since := time.Since(start); since > time.Second && since < 6*time.Second {
				return errNet, false
			}
			return nil, true
		}
		if _, err = c.Mutex("k").Lock(t.Context()); err != nil {
			t.Fatalf("an outage of 5s ended a wait under a TTL of 10s: %v", err)
		}

		f.take("j", "other", time.Hour)
		start = time.Now()
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if time.Since(start) > time.Second {
				return errNet, false
			}
			return nil, true
		}
		_, err = c.Mutex("j").Lock(t.Context())
		wantErr(t, "Lock on a service that went away", err, errNet)
		if took := time.Since(start); took > 2*ttl {
			t.Fatalf("gave up after %v", took)
		}
	})
}

// TestLostReplyOfAnAcquire: the service did it, the client does not know.
func TestLostReplyOfAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.caps.Loss = backend.LossSession // nothing ends it but the abandonment
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "acquire" {
				return backend.Uncertain(errNet), true
			}
			if op == "abandon" && n < 3 {
				return errNet, false
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(ttl))
		_, err := c.Mutex("k").TryLock(t.Context())
		wantErr(t, "TryLock", err, errNet)
		wantNot(t, "TryLock that was abandoned with success", err, lock.ErrUncertain)
		if f.holder("k") != "" {
			t.Fatal("the orphan is still there when TryLock returns")
		}

		// the service stays away for longer than the caller is made to wait
		back := time.Now().Add(5 * time.Second)
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "acquire" {
				return backend.Uncertain(errNet), true
			}
			return errNet, time.Now().After(back)
		}
		start := time.Now()
		_, err = c.Mutex("k").TryLock(t.Context())
		wantErr(t, "TryLock", err, lock.ErrUncertain, errNet)
		if took := time.Since(start); took > time.Second {
			t.Fatalf("the caller was kept for %v", took)
		}
		if f.holder("k") == "" {
			t.Fatal("the test is wrong: nothing to clean up")
		}
		time.Sleep(10 * time.Second)
		if f.holder("k") != "" {
			t.Fatal("the orphan was not cleaned up in the background")
		}
	})
}

func TestCancelInMidExchangeIsPromptAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if op == "acquire" {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), true
			}
			return nil, true
		}
		c := newClient(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := c.Mutex("k").Lock(ctx)
		if took := time.Since(start); took != time.Second {
			t.Fatalf("returned after %v", took)
		}
		wantErr(t, "Lock", err, context.Canceled)
		wantNot(t, "Lock", err, lock.ErrUncertain)
		if f.holder("k") != "" {
			t.Fatal("an orphan was left")
		}
	})
}

func TestTryLockIsBoundedWhateverItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			<-ctx.Done()
			return backend.Uncertain(ctx.Err()), false
		}
		start := time.Now()
		_, err := newClient(t, f).Mutex("k").TryLock(t.Context())
		wantErr(t, "TryLock on a hung service", err, lock.ErrUncertain)
		if took := time.Since(start); took > 11*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

func TestAcquireContextDoesNotBoundTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Second)
		l, err := newClient(t, newFake()).Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(2 * lock.DefaultTTL)
		if l.Err() != nil || l.Context().Err() != nil {
			t.Fatalf("the end of the acquire's context ended the hold: %v", l.Err())
		}
		if l.Context().Value(key{}) != "v" {
			t.Fatal("the lease's context lost the values")
		}
		if err := l.Unlock(ctx); err != nil {
			t.Fatalf("Unlock under a dead context: %v", err)
		}
	})
}

func TestBadInputIsNamed(t *testing.T) {
	f := newFake()
	c := newClient(t, f)
	long := strings.Repeat("x", backend.MaxName+1)
	for want, m := range map[string]lock.Mutex{
		"name":                         c.Mutex(""),
		"1025 bytes":                   c.Mutex(long),
		"ttl 0s: want from 50ms to 1h": c.Mutex("k", lock.WithTTL(0)),
		"ttl -1s":                      c.Mutex("k", lock.WithTTL(-time.Second)),
		"ttl 49ms":                     c.Mutex("k", lock.WithTTL(49*time.Millisecond)),
		"ttl 2h0m0s":                   c.Mutex("k", lock.WithTTL(2*time.Hour)),
		"min hold -1s":                 c.Mutex("k", lock.WithMinHold(-time.Second)),
		"metadata":                     c.Mutex("k", lock.WithMetadata("a\nb")),
		"257 bytes":                    c.Mutex("k", lock.WithMetadata(strings.Repeat("x", 257))),
	} {
		_, err := m.Lock(t.Context())
		wantErr(t, want, err, lock.ErrInvalid)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if n := f.count("acquire"); n != 0 {
		t.Fatalf("%d requests were sent", n)
	}
	_, err := lock.New(f, lock.WithTTL(0))
	wantErr(t, "New with a zero TTL", err, lock.ErrInvalid)
	_, err = lock.New(f, lock.WithRequire(backend.RequireFencing, backend.RequireFIFO))
	wantErr(t, "New with an unmet requirement", err, errors.ErrUnsupported)
	if !strings.Contains(err.Error(), "order=fifo") {
		t.Errorf("%q does not name the requirement", err)
	}
}

func TestUnclassifiedErrorIsAbandoned(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		abandons int
	}{
		"unclassified": {errNet, 1},
		"not executed": {backend.NotExecuted(errNet), 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
				if op == "acquire" {
					return c.err, true
				}
				return nil, true
			}
			_, err := newClient(t, f).Mutex("k").TryLock(t.Context())
			wantErr(t, "TryLock", err, errNet)
			if got := f.count("abandon"); got != c.abandons {
				t.Errorf("want %d calls of Abandon, got %d", c.abandons, got)
			}
		})
	}
}

// A driver that does not count (a zero Until) gets no lease: it would never end.
func TestGrantWithoutUntilIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := &spoilt{fake: f, wrap: func(g backend.Grant) backend.Grant { return noUntil{g} }}
		if _, err := newClient(t, b).Mutex("k").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "until when") {
			t.Fatalf("want an error that names the mistake, got %v", err)
		}
		synctest.Wait()
		if f.holder("k") != "" {
			t.Fatal("the grant was not released")
		}
	})
}

type noUntil struct{ backend.Grant }

func (noUntil) Until() time.Time { return time.Time{} }
