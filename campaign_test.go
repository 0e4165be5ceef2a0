package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

var errWork = errors.New("disk full")

func TestCampaignEnds(t *testing.T) {
	for name, c := range map[string]struct {
		lead func(ctx context.Context) error
		want error
	}{
		"nil":      {func(context.Context) error { return nil }, nil},
		"an error": {func(context.Context) error { return errWork }, errWork},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			err := lock.Campaign(t.Context(), newClient(t, f).Mutex("k"), c.lead)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if f.holder("k") != "" || f.count("acquire") != 1 {
				t.Errorf("%s: held by %q after %d terms", name, f.holder("k"), f.count("acquire"))
			}
		})
	}
}

func TestCampaignPanicFreesAndGoesOn(t *testing.T) {
	f := newFake()
	c := newClient(t, f)
	defer func() {
		if recover() != "boom" {
			t.Error("the panic was swallowed")
		}
		if f.holder("k") != "" {
			t.Error("still held")
		}
	}()
	_ = lock.Campaign(t.Context(), c.Mutex("k"), func(context.Context) error { panic("boom") })
}

// ErrResign lets those who wait lead first.
func TestCampaignResign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		var mu sync.Mutex
		var terms []string
		var all sync.WaitGroup
		for _, name := range []string{"x", "y", "z"} {
			m := newClient(t, space.Backend()).Mutex("k")
			all.Go(func() {
				n := 0
				err := lock.Campaign(t.Context(), m, func(ctx context.Context) error {
					mu.Lock()
					terms = append(terms, name)
					mu.Unlock()
					time.Sleep(time.Minute)
					if n++; n == 3 {
						return nil
					}
					return lock.ErrResign
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // so that they come in order
		}
		all.Wait()
		if got := strings.Join(terms, ""); got != "xyzxyzxyz" {
			t.Errorf("terms %s", got)
		}
	})
}

// A leader that loses its lease learns of it before another leads, and campaigns again.
func TestCampaignAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(10*time.Second))
		fails := false
		f.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if op == "renew" && fails {
				return errNet, false
			}
			return nil, true
		}
		terms := 0
		var reasons []error
		var lost time.Time
		ctx := context.WithValue(t.Context(), ctxKey{}, "value")
		err := lock.Campaign(ctx, c.Mutex("k"), func(ctx context.Context) error {
			if ctx.Value(ctxKey{}) != "value" {
				t.Error("the context has not the caller's values")
			}
			if terms++; terms > 1 {
				return nil
			}
			f.mu.Lock()
			fails = true
			expires := f.keys["k"].expires
			f.mu.Unlock()
			<-ctx.Done()
			lost = time.Now()
			if !lost.Before(expires) {
				t.Errorf("the leader learns of its loss %v after another could lead", lost.Sub(expires))
			}
			wantErr(t, "cause", context.Cause(ctx), lock.ErrLost)
			f.mu.Lock()
			fails = false
			f.mu.Unlock()
			time.Sleep(time.Hour) // slow to stop: there must be no second term beside it
			return errWork
		}, lock.WithOnRetry(func(err error) { reasons = append(reasons, err) }))
		if err != nil || terms != 2 || len(reasons) != 1 {
			t.Fatalf("%v after %d terms, %v", err, terms, reasons)
		}
		wantErr(t, "the reason", reasons[0], lock.ErrLost, errNet, errWork)
	})
}

type ctxKey struct{}

// What a function returns because its context has ended says nothing.
func TestCampaignAfterLossReturnsContextError(t *testing.T) {
	for _, ret := range []func(context.Context) error{
		func(context.Context) error { return nil },
		func(ctx context.Context) error { return ctx.Err() },
		func(ctx context.Context) error { return fmt.Errorf("stopped: %w", context.Cause(ctx)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c := newClient(t, f)
			terms := 0
			var reason error
			err := lock.Campaign(t.Context(), c.Mutex("k"), func(ctx context.Context) error {
				if terms++; terms > 1 {
					return nil
				}
				f.take("k", "thief", time.Minute)
				<-ctx.Done()
				return ret(ctx)
			}, lock.WithOnRetry(func(err error) { reason = err }))
			if err != nil || terms != 2 {
				t.Fatalf("%v after %d terms", err, terms)
			}
			wantErr(t, "the reason", reason, lock.ErrLost)
			if strings.Contains(reason.Error(), ";") {
				t.Errorf("the reason says it twice: %v", reason)
			}
		})
	}
}

func TestCampaignContextEnds(t *testing.T) {
	for _, ret := range []error{nil, context.Canceled, errWork} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c := newClient(t, f)
			why := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(t.Context())
			start := time.Now()
			time.AfterFunc(time.Minute, func() { cancel(why) })
			err := lock.Campaign(ctx, c.Mutex("k"), func(ctx context.Context) error {
				<-ctx.Done()
				wantErr(t, "cause", context.Cause(ctx), why)
				if f.holder("k") == "" {
					t.Error("freed while the function still runs")
				}
				return ret
			})
			wantErr(t, "Campaign", err, context.Canceled, why)
			if errors.Is(err, errWork) != (ret == errWork) {
				t.Errorf("got %v, the function returned %v", err, ret)
			}
			if f.holder("k") != "" || time.Since(start) != time.Minute {
				t.Errorf("held by %q, ended after %v", f.holder("k"), time.Since(start))
			}
			// while waiting
			f.take("k", "other", time.Hour)
			wait, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			err = lock.Campaign(wait, c.Mutex("k"), func(context.Context) error { t.Error("led"); return nil })
			wantErr(t, "Campaign", err, context.DeadlineExceeded, lock.ErrLocked)
		})
	}
}

// lateContext is over a moment after its deadline: timers of one instant fire in any
// order.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

func TestCampaignDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deadline := time.Now().Add(time.Minute)
		late, cancel := context.WithDeadline(t.Context(), deadline.Add(time.Second))
		defer cancel()
		err := lock.Campaign(lateContext{late, deadline}, newClient(t, newFake()).Mutex("k"), func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		wantErr(t, "Campaign", err, context.DeadlineExceeded)
	})
}

func TestCampaignTriesAgainWithAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		var times []time.Time
		f.spoil = func(_ context.Context, op string, n int) (error, bool) {
			if op != "acquire" {
				return nil, true
			}
			times = append(times, time.Now())
			if n <= 8 {
				return errNet, false
			}
			return nil, true
		}
		retries := 0
		err := lock.Campaign(t.Context(), c.Mutex("k"), func(context.Context) error { return nil },
			lock.WithBackoff(time.Second, 8*time.Second), lock.WithOnRetry(func(err error) {
				retries++
				wantErr(t, "the reason", err, errNet)
			}))
		if err != nil || len(times) != 9 || retries != 8 {
			t.Fatalf("%v after %d attempts and %d retries", err, len(times), retries)
		}
		for i := range 8 {
			most := min(time.Second<<i, 8*time.Second)
			if pause := times[i+1].Sub(times[i]); pause < most/2 || pause > most {
				t.Errorf("pause %d: %v, want %v to %v", i, pause, most/2, most)
			}
		}
	})
}

func TestCampaignThatCannotSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f)
		never := func(context.Context) error { t.Error("led"); return nil }
		wantErr(t, "bad name", lock.Campaign(t.Context(), c.Mutex(""), never), lock.ErrInvalid)
		wantErr(t, "bad pause", lock.Campaign(t.Context(), c.Mutex("k"), never, lock.WithBackoff(0, time.Second)), lock.ErrInvalid)
		wantErr(t, "bad pause", lock.Campaign(t.Context(), c.Mutex("k"), never, lock.WithBackoff(time.Second, time.Millisecond)), lock.ErrInvalid)
		l := mustLock(t, c.Mutex("k"))
		wantErr(t, "under its own lease", lock.Campaign(l.Context(), c.Mutex("k"), never), lock.ErrLocked)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := lock.Campaign(t.Context(), c.Mutex("k"), func(ctx context.Context) error {
			go func() { _ = c.Close(context.Background()) }()
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, "closed while leading", err, lock.ErrClosed)
		wantNot(t, "closed while leading", err, context.Canceled)
		wantErr(t, "closed", lock.Campaign(t.Context(), c.Mutex("k"), never), lock.ErrClosed)
	})
}

// Losses, resignations and errors of several nodes: never two leaders, somebody leads
// most of the time, and everybody does at some time.
func TestCampaignOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var mu sync.Mutex
		leader, losses, terms, led := context.Context(nil), 0, map[int]int{}, time.Duration(0)
		var all sync.WaitGroup
		for i := range 4 {
			m := newClient(t, &outages{space.Backend()}, lock.WithTTL(5*time.Second)).Mutex("k")
			all.Go(func() {
				err := lock.Campaign(ctx, m, func(ctx context.Context) error {
					mu.Lock()
					if leader != nil && leader.Err() == nil {
						t.Error("two leaders")
					}
					leader = ctx
					terms[i]++
					mu.Unlock()
					start := time.Now()
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Second):
					}
					mu.Lock()
					if leader == ctx {
						leader = nil
					}
					led += time.Since(start)
					if ctx.Err() != nil {
						losses++
					}
					mu.Unlock()
					return lock.ErrResign
				})
				wantErr(t, "Campaign", err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		if len(terms) != 4 || led < 50*time.Minute || losses < 30 {
			t.Errorf("terms %v, %d lost, led for %v of an hour", terms, losses, led)
		}
	})
}

// outages is a backend whose renewals fail for six seconds of each half minute.
type outages struct{ *memlock.Backend }

func (o *outages) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	g, err := o.Backend.TryAcquire(ctx, req)
	return outage{g}, err
}

func (o *outages) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	g, err := o.Backend.Acquire(ctx, req)
	return outage{g}, err
}

type outage struct{ backend.Grant }

func (o outage) Renew(ctx context.Context, ttl time.Duration) error {
	if time.Now().Unix()%30 < 6 {
		return errNet
	}
	return o.Grant.Renew(ctx, ttl)
}

func TestLeaderAndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		watcher := newClient(t, space.Backend()).Mutex("k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		var seen []string
		var all sync.WaitGroup
		all.Go(func() {
			for leader, err := range lock.WatchLeader(ctx, watcher, time.Second) {
				who := "nobody"
				if err != nil {
					who = "error"
				} else if leader != nil {
					who = leader.Metadata
				}
				seen = append(seen, fmt.Sprintf("%s at %v", who, time.Since(start)))
			}
		})
		time.Sleep(2500 * time.Millisecond)
		for _, name := range []string{"x:80", "y:80", "y:80"} {
			m := newClient(t, space.Backend(), lock.WithMetadata(name)).Mutex("k")
			err := lock.Campaign(ctx, m, func(context.Context) error {
				h, err := lock.Leader(ctx, watcher)
				if err != nil || h == nil || h.Metadata != name {
					t.Errorf("the leader is %+v, %v", h, err)
				}
				time.Sleep(3 * time.Second)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Second)
		cancel()
		all.Wait()
		want := []string{"nobody at 0s", "x:80 at 3s", "y:80 at 6s", "y:80 at 9s", "nobody at 12s"}
		if !slices.Equal(seen, want) {
			t.Errorf("seen %q\nwant %q", seen, want)
		}
		if h, err := lock.Leader(t.Context(), watcher); h != nil || err != nil {
			t.Errorf("%v, %v", h, err)
		}
	})
}

// script is a Mutex of another package that can be asked for its holder.
type script struct {
	foreign
	answers []any // one for each question; nil is nobody
}

func (a *script) Inspect(context.Context) (lock.Info, error) {
	next := a.answers[0]
	if len(a.answers) > 1 {
		a.answers = a.answers[1:]
	}
	switch v := next.(type) {
	case error:
		return lock.Info{}, v
	case *lock.Holder:
		return lock.Info{Holder: v}, nil
	}
	return lock.Info{}, nil
}

func TestWatchLeaderErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newFake())
		watch := func(m lock.Mutex, interval time.Duration) (got []string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for h, err := range lock.WatchLeader(ctx, m, interval) {
				switch {
				case errors.Is(err, errNet):
					got = append(got, "net")
				case errors.Is(err, lock.ErrInvalid):
					got = append(got, "invalid")
				case errors.Is(err, lock.ErrClosed):
					got = append(got, "closed")
				case errors.Is(err, errors.ErrUnsupported):
					got = append(got, "unsupported")
				case err != nil:
					got = append(got, err.Error())
				case h == nil:
					got = append(got, "nobody")
				default:
					got = append(got, h.Owner)
				}
			}
			return got
		}
		x := &lock.Holder{Token: 1}
		x.Owner = "x"
		again := &lock.Holder{Token: 2}
		again.Owner = "x"
		for _, w := range []struct {
			m        lock.Mutex
			interval time.Duration
			want     string
		}{
			{&script{foreign{c.Mutex("k")}, []any{nil, nil, x, x, errNet, errNet, x, again, errNet}}, time.Second, "nobody x net x x net"},
			{&script{foreign{c.Mutex("k")}, []any{errNet, lock.ErrClosed, x}}, time.Second, "net closed"},
			{c.Mutex("k"), time.Second, "unsupported"}, // the fake cannot inspect
			{lock.All(c.Mutex("k")), time.Second, "unsupported"},
			{foreign{c.Mutex("k")}, time.Second, "unsupported"},
			{c.Mutex(""), time.Second, "invalid"},
			{c.Mutex("k"), 0, "invalid"},
		} {
			if got := strings.Join(watch(w.m, w.interval), " "); got != w.want {
				t.Errorf("got %q, want %q", got, w.want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for h, err := range lock.WatchLeader(ctx, &cutOff{foreign{c.Mutex("k")}, cancel}, time.Second) {
			t.Errorf("yielded %v, %v after the end of its context", h, err)
		}
		for h, err := range lock.WatchLeader(t.Context(), &script{foreign{c.Mutex("k")}, []any{x}}, time.Second) {
			if err != nil || h.Owner != "x" {
				t.Error(h, err)
			}
			break
		}
	})
}

// cutOff ends the context by which it is asked.
type cutOff struct {
	foreign
	cancel context.CancelFunc
}

func (c *cutOff) Inspect(ctx context.Context) (lock.Info, error) {
	c.cancel()
	return lock.Info{}, ctx.Err()
}

func TestLeaderOfAMigration(t *testing.T) {
	old, new := newClient(t, memlock.NewSpace().Backend()), newClient(t, memlock.NewSpace().Backend())
	for phase, want := range map[lock.Phase]string{lock.PhaseOld: "old", lock.PhaseBoth: "old", lock.PhaseNew: "new"} {
		mo, mn := old.Mutex("k", lock.WithMetadata("old")), new.Mutex("k", lock.WithMetadata("new"))
		m := lock.Migrate(mo, mn, phase)
		l := mustLock(t, m)
		if h, err := lock.Leader(t.Context(), m); err != nil || h == nil || h.Metadata != want {
			t.Errorf("%v: %+v, %v", phase, h, err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
