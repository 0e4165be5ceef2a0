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

func TestMarginIsWhatTheDocumentationSays(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond: 10*time.Millisecond + 50*time.Microsecond,
		time.Second:           51 * time.Millisecond,
		30 * time.Second:      530 * time.Millisecond,
		time.Hour:             4100 * time.Millisecond,
	} {
		if got := lock.Margin(ttl); got != want {
			t.Errorf("margin of %v: %v, want %v", ttl, got, want)
		}
	}
}

func TestRenewalIsTrustedFromItsSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := &spoilt{fake: f, wrap: func(g backend.Grant) backend.Grant {
			return &spoiltGrant{Grant: g, renew: func(ctx context.Context, ttl time.Duration, g backend.Grant) error {
				err := g.Renew(ctx, ttl)
				time.Sleep(time.Second) // the reply's way
				return err
			}}
		}}
		l := mustLock(t, newClient(t, b, lock.WithTTL(ttl), lock.WithoutRenewal()).Mutex("k"))
		time.Sleep(ttl / 2)
		sent := time.Now()
		if err := l.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if got := l.Expires().Sub(sent); got != ttl-lock.Margin(ttl) {
			t.Fatalf("trusted for %v from the send", got)
		}
	})
}

func TestAnswerAfterTheEndRevivesNothingEvenWithoutTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		b := &spoilt{fake: f, wrap: func(g backend.Grant) backend.Grant {
			return &spoiltGrant{Grant: g, renew: func(ctx context.Context, d time.Duration, g backend.Grant) error {
				err := g.Renew(ctx, d)
				time.Sleep(2 * ttl) // stopped here, past the old end and not past what the answer would give
				return err
			}}
		}}
		l := mustLock(t, newClient(t, b, lock.WithTTL(ttl)).Mutex("k"))
		l.StopTimer()
		time.Sleep(ttl / 2)
		wantErr(t, "Extend answered after the end", l.Extend(context.Background(), time.Minute), lock.ErrLost)
		wantErr(t, "Err", l.Err(), lock.ErrLost)
	})
}

func TestPushedClaimOfALongTTLIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.claim = 3 * time.Second
		l := mustLock(t, newClient(t, f, lock.WithTTL(time.Hour)).Mutex("k"))
		time.Sleep(2 * time.Second)
		if err := l.Err(); err != nil || time.Until(l.Expires()) < 50*time.Minute {
			t.Fatal("the claim was not completed:", err, time.Until(l.Expires()))
		}
	})
}

func TestFixedLeaseThatWasExtendedIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.claim = 3 * time.Second
		l := mustLock(t, newClient(t, f, lock.WithTTL(30*time.Second), lock.WithoutRenewal()).Mutex("k"))
		time.Sleep(500 * time.Millisecond)
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		end := l.Expires()
		time.Sleep(10 * time.Second)
		if !l.Expires().Equal(end) {
			t.Fatalf("its end moved by %v", l.Expires().Sub(end))
		}
	})
}

func TestOwnersAreFreshForEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "other", time.Second)
		seen := map[string]bool{}
		b := &asked{f, func(r backend.Request) {
			if seen[r.Owner] || len(r.Owner) != 32 {
				t.Errorf("owner %q again, or not 32 digits", r.Owner)
			}
			seen[r.Owner] = true
		}}
		if _, err := newClient(t, b).Mutex("k").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(seen) < 3 {
			t.Fatalf("%d attempts", len(seen))
		}
	})
}

type asked struct {
	*fake
	see func(backend.Request)
}

func (a *asked) TryAcquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	a.see(r)
	return a.fake.TryAcquire(ctx, r)
}

func TestBackendsErrorIsBesideTheContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "acquire" {
				<-ctx.Done()
				return fmt.Errorf("dial: %w: %w", errNet, ctx.Err()), false
			}
			return nil, true
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newClient(t, f).Mutex("k").Lock(ctx)
		wantErr(t, "Lock whose only attempt could not connect", err, context.DeadlineExceeded, errNet)

		f.take("k", "other", time.Minute)
		start := time.Now()
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "acquire" && time.Since(start) > time.Second {
				return errNet, false
			}
			return nil, true
		}
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = newClient(t, f).Mutex("k").Lock(ctx)
		wantErr(t, "Lock that waited through an outage", err, context.DeadlineExceeded, errNet)
	})
}

func TestOneHungAttemptDoesNotEndAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "other", 8*time.Second)
		f.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if op == "acquire" && n == 5 {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			return nil, true
		}
		if _, err := newClient(t, f, lock.WithTTL(5*time.Second)).Mutex("k").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestErrorNamesTheLockThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(ttl))
		a := mustLock(t, c.Mutex("a"))
		f.take("b", "x", time.Hour)
		time.AfterFunc(time.Second, func() { f.take("a", "y", time.Hour) })
		_, err := c.Mutex("b").Lock(a.Context()) // ended by the loss of a
		var e *lock.Error
		if !errors.As(err, &e) || e.Name != "b" || e.Op != "lock" {
			t.Fatalf("%#v", err)
		}
		wantErr(t, "Lock", err, lock.ErrLost)
	})
}

func TestWaitThatCloseEndedWasNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "x", time.Hour)
		c := newClient(t, f)
		ended := make(chan error)
		go func() {
			_, err := c.Mutex("k").Lock(context.Background())
			ended <- err
		}()
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := <-ended
		wantErr(t, "Lock", err, lock.ErrClosed)
		wantNot(t, "Lock", err, context.Canceled)
		if strings.Contains(err.Error(), "\n") {
			t.Fatalf("%q has a line break", err)
		}
	})
}

func TestFnSeesItsCallersEndAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memlock.New())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := lock.Do(ctx, c.Mutex("k"), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, "fn's ctx.Err at the caller's deadline", err, context.DeadlineExceeded)

		ctx, cancel = context.WithCancel(t.Context())
		_ = lock.Do(ctx, c.Mutex("k"), func(inner context.Context) error {
			cancel()
			if inner.Err() == nil {
				t.Error("fn's context is alive right after its caller's was cancelled")
			}
			return nil
		})
	})
}

// detached is a context whose deadline has passed and which never ends.
type detached struct{ context.Context }

func (detached) Done() <-chan struct{} { return nil }
func (detached) Err() error            { return nil }

func TestContextThatDoesNotKeepItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.take("k", "other", time.Hour)
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		start := time.Now()
		_, err := newClient(t, f).Mutex("k").TryLock(detached{ctx})
		wantErr(t, "TryLock", err, lock.ErrLocked)
		if took := time.Since(start); took > time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// An error says what happened once, and matches only what is so.
func TestTextsOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, hung{f}, lock.WithTTL(2*time.Second))
		l := mustLock(t, c.Mutex("held", lock.WithoutRenewal(), lock.WithTTL(time.Minute)))
		answer := func(err error, ops ...string) {
			if len(ops) == 0 {
				f.setSpoil(nil)
				return
			}
			f.setSpoil(func(ctx context.Context, op string, _ int) (error, bool) {
				if !slices.Contains(ops, op) {
					return nil, true
				}
				if err == nil {
					<-ctx.Done()
					return backend.Uncertain(backend.Uncertain(ctx.Err())), false
				}
				return err, false
			})
		}
		check := func(what string, err error, want string, not ...error) {
			t.Helper()
			if err == nil || err.Error() != want {
				t.Errorf("%s:\n got %v\nwant %s", what, err, want)
			}
			for _, target := range not {
				wantNot(t, what, err, target)
			}
		}
		try := func() error { _, err := c.Mutex("k").TryLock(t.Context()); return err }
		twice := backend.Uncertain(fmt.Errorf("read: %w", backend.Uncertain(errNet)))

		answer(twice, "acquire")
		check("undone", try(), `lock "k" on fake: read: connection reset; undone`, lock.ErrUncertain)
		answer(errNet, "acquire", "abandon")
		check("unknown", try(), `lock "k" on fake: outcome unknown: connection reset`)
		answer(errors.New("two\nlines"), "acquire")
		check("two lines", try(), `lock "k" on fake: two lines; undone`)
		answer(nil, "acquire")
		check("no answer", try(), `lock "k" on fake: no answer in time; undone`, context.DeadlineExceeded)
		answer(nil, "acquire", "abandon")
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Mutex("k").TryLock(short)
		check("deadline", err, `lock "k" on fake: context deadline exceeded; outcome unknown`)
		wantErr(t, "deadline", err, context.DeadlineExceeded, lock.ErrUncertain)
		answer(nil, "renew")
		check("renewal", l.Check(t.Context()), `lock: check "held" on fake: outcome unknown: no answer in time`, context.DeadlineExceeded)
		answer(nil, "release")
		check("release", l.Unlock(t.Context()), `lock: unlock "held" on fake: not acknowledged within 5s: outcome unknown: no answer in time`, context.DeadlineExceeded)
		check("ping", c.Ping(t.Context()), `lock: ping on fake: no answer in time`, context.DeadlineExceeded)
		_, err = c.Inspect(t.Context(), "k")
		check("inspect", err, `lock: inspect "k" on fake: no answer in time`, lock.ErrUncertain)
		_, err = c.Break(t.Context(), "k")
		check("break", err, `lock: break "k" on fake: outcome unknown: no answer in time`, context.DeadlineExceeded)
		_, err = lock.All().Lock(t.Context())
		check("All of nothing", err, `lock: invalid parts: want at least one`)
		answer(nil)
	})
}

func (hung) Inspect(ctx context.Context, _ string) (backend.Info, error) {
	<-ctx.Done()
	return backend.Info{}, backend.Uncertain(ctx.Err())
}
