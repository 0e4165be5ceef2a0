package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

const ttl = 10 * time.Second

// lostAfter waits for the end of the lease and returns how long that took.
func lostAfter(t *testing.T, l *lock.Lease, from time.Time) time.Duration {
	t.Helper()
	<-l.Done()
	wantErr(t, "cause of the lease's context", context.Cause(l.Context()), lock.ErrLost)
	return time.Since(from)
}

func hang(ctx context.Context, op string, _ int) (error, bool) {
	if op != "renew" {
		return nil, true
	}
	<-ctx.Done()
	return backend.Uncertain(ctx.Err()), false
}

func TestLossComesBeforeTheServerMayGrantAgain(t *testing.T) {
	for name, spoil := range map[string]func(context.Context, string, int) (error, bool){
		"renewals hang": hang,
		"renewals fail": func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" {
				return errNet, false
			}
			return nil, true
		},
		"renewals hang for ever and ignore their context": func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" {
				time.Sleep(time.Hour)
				return errNet, false
			}
			return nil, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.spoil = spoil
				c := newClient(t, f, lock.WithTTL(ttl))
				start := time.Now()
				l := mustLock(t, c.Mutex("k"))
				if got, want := lostAfter(t, l, start), ttl-lock.Margin(ttl); got != want {
					t.Fatalf("loss was signalled %v after the acquire was sent, want %v", got, want)
				}
				wantErr(t, "Err", l.Err(), lock.ErrLost)
				wantErr(t, "Check", l.Check(t.Context()), lock.ErrLost)
				wantErr(t, "Extend", l.Extend(t.Context(), ttl), lock.ErrLost)
				wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrLost)
				synctest.Wait()
				if f.holder("k") != "" {
					t.Fatal("a lost lease was not released though the server could be reached")
				}
				time.Sleep(2 * time.Hour) // lets the renewal that ignores its context end
			})
		})
	}
}

func TestTrustIsCountedFromTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if op == "acquire" {
				time.Sleep(3 * time.Second) // a slow way to the server and back
			}
			return hang(ctx, op, n)
		}
		c := newClient(t, f, lock.WithTTL(ttl))
		sent := time.Now()
		l := mustLock(t, c.Mutex("k"))
		if got, want := lostAfter(t, l, sent), ttl-lock.Margin(ttl); got != want {
			t.Fatalf("loss came %v after the send, want %v: the reply's way must not count", got, want)
		}
	})
}

func TestGrantThatTakesAsLongAsTheLeaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.caps.Loss = backend.LossSession // so that only the client's release frees it
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "acquire" {
				time.Sleep(time.Second)
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(time.Second))
		if _, err := c.Mutex("k").TryLock(t.Context()); err == nil {
			t.Fatal("TryLock gave out a lease whose trust was over")
		}
		synctest.Wait()
		if f.holder("k") != "" {
			t.Fatal("the late grant was not released")
		}
	})
}

func TestRenewalOutlastsTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		l := mustLock(t, c.Mutex("k"))
		time.Sleep(20 * ttl)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if n := f.count("renew"); n < 50 || n > 70 {
			t.Fatalf("%d renewals in 20 TTLs, want about three a TTL", n)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := f.count("renew")
		time.Sleep(20 * ttl)
		if f.count("renew") != n {
			t.Fatal("renewal went on after Unlock")
		}
	})
}

func TestFailedRenewalThatRecoversIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		failed := 0
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "renew" && n%5 != 0 {
				return errNet, false
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
			RenewFailed: func(_ context.Context, e lock.Event) {
				failed++
				wantErr(t, "event", e.Err, errNet)
			},
		}))
		l := mustLock(t, c.Mutex("k"))
		time.Sleep(10 * ttl)
		if err := l.Err(); err != nil {
			t.Fatal(err)
		}
		if failed == 0 {
			t.Fatal("no failed renewal was observed")
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHungRenewalLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if op == "renew" && n%3 != 0 {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(ttl))
		l := mustLock(t, c.Mutex("k"))
		time.Sleep(10 * ttl)
		if err := l.Err(); err != nil {
			t.Fatalf("two hung renewals of three lost the lease: %v", err)
		}
	})
}

func TestErrLostOfTheServerEndsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		start := time.Now()
		l := mustLock(t, c.Mutex("k"))
		f.take("k", "other", time.Hour)
		if got := lostAfter(t, l, start); got > ttl/2 {
			t.Fatalf("loss came after %v, want it at the first renewal", got)
		}
		wantErr(t, "Unlock", l.Unlock(t.Context()), lock.ErrLost)
		synctest.Wait()
		if f.holder("k") != "other" {
			t.Fatal("the successor's hold was touched")
		}
	})
}

func TestOnceLostIsNeverRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		reply := make(chan struct{})
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op == "renew" {
				<-reply // executed and answered, but after the trust is over
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(ttl), lock.WithoutRenewal())
		l := mustLock(t, c.Mutex("k"))
		time.Sleep(ttl / 2)
		go func() { time.Sleep(ttl); close(reply) }()
		wantErr(t, "Check whose answer came after the loss", l.Check(t.Context()), lock.ErrLost)
		wantErr(t, "Err", l.Err(), lock.ErrLost)
	})
}

func TestFixedLeaseEndsAtItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, loss := range []backend.Loss{backend.LossTTL, backend.LossProcess} {
			f := newFake()
			f.caps.Loss = loss
			c := newClient(t, f, lock.WithTTL(ttl), lock.WithoutRenewal())
			start := time.Now()
			l := mustLock(t, c.Mutex("k"))
			if got := l.Expires().Sub(start); got != ttl-lock.Margin(ttl) {
				t.Fatalf("Expires is %v after the acquire", got)
			}
			if got := lostAfter(t, l, start); got != ttl-lock.Margin(ttl) {
				t.Fatalf("%v: ended after %v", loss, got)
			}
			if f.count("renew") != 0 {
				t.Fatalf("%v: a fixed lease was renewed", loss)
			}
			synctest.Wait()
			if f.holder("k") != "" {
				t.Fatalf("%v: the lease that ended was not released", loss)
			}
		}
	})
}

func TestLeaseOfAProcessDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.caps.Loss = backend.LossProcess
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" {
				return errNet, false
			}
			return nil, true
		}
		c := newClient(t, f, lock.WithTTL(time.Second))
		l := mustLock(t, c.Mutex("k"))
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Fatalf("a hold that lives as long as its process was lost: %v", err)
		}
	})
}

// patient is a backend that grants after a wait.
type patient struct {
	*fake
	wait time.Duration
}

func (p *patient) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	time.Sleep(p.wait)
	return p.TryAcquire(ctx, req)
}

// Where a process's life is what holds a lock, only the core ends a fixed lease: it
// begins with the grant, however long that was waited for.
func TestFixedLeaseOfAProcessThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.caps.Loss = backend.LossProcess
		c := newClient(t, &patient{f, 3 * ttl}, lock.WithTTL(ttl), lock.WithoutRenewal())
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := lostAfter(t, l, time.Now()); got < ttl*9/10 || got > ttl {
			t.Fatalf("a fixed lease of %v ended after %v", ttl, got)
		}
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl), lock.WithoutRenewal())
		l := mustLock(t, c.Mutex("k"))
		end := l.Expires()
		time.Sleep(ttl / 2)
		if err := l.Check(t.Context()); err != nil || !l.Expires().Equal(end) {
			t.Fatalf("Check moved the end of a fixed lease, or failed: %v", err)
		}
		start := time.Now()
		if err := l.Extend(t.Context(), 6*ttl); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Extend by 0", l.Extend(t.Context(), 0), lock.ErrInvalid)
		wantErr(t, "Extend beyond the backend's most", l.Extend(t.Context(), 2*time.Hour), lock.ErrInvalid)
		if got := lostAfter(t, l, start); got != 6*ttl-lock.Margin(6*ttl) {
			t.Fatalf("ended %v after Extend", got)
		}
	})
}

func TestStoppedProcessFindsItsLeaseOverAtItsFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := map[string]func(l *lock.Lease, ctx context.Context) error{
			"Context().Err": func(l *lock.Lease, _ context.Context) error { return l.Context().Err() },
			"child context": func(_ *lock.Lease, ctx context.Context) error { return ctx.Err() },
			"Err":           func(l *lock.Lease, _ context.Context) error { return l.Err() },
			"Check":         func(l *lock.Lease, _ context.Context) error { return l.Check(context.Background()) },
			"Unlock":        func(l *lock.Lease, _ context.Context) error { return l.Unlock(context.Background()) },
		}
		c := newClient(t, newFake(), lock.WithTTL(ttl))
		for name, look := range looks {
			m := c.Mutex(name)
			_ = lock.Do(t.Context(), &stopped{m}, func(ctx context.Context) error {
				l := ctx.Value(leaseKey{}).(func() *lock.Lease)()
				time.Sleep(ttl)
				if look(l, ctx) == nil {
					t.Errorf("%s: no error though the process was stopped past its TTL", name)
				}
				return nil
			})
		}
	})
}

type leaseKey struct{}

// stopped is a mutex whose leases have no timers, as those of a stopped process.
type stopped struct{ lock.Mutex }

func (m *stopped) Lock(ctx context.Context) (*lock.Lease, error) {
	var l *lock.Lease
	ctx = context.WithValue(ctx, leaseKey{}, func() *lock.Lease { return l })
	l, err := m.Mutex.Lock(ctx)
	if err == nil {
		l.StopTimer()
	}
	return l, err
}
