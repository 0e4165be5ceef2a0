package elect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/internal/clienttest"
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
			f := newService(t, memlock.NewSpace())
			err := elect.Campaign(t.Context(), newClient(t, f).Mutex("k"), c.lead)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if f.holder(t, "k") != nil || f.count("acquire") != 1 {
				t.Errorf("%s: held by %v after %d terms", name, f.holder(t, "k"), f.count("acquire"))
			}
		})
	}
}

func TestCampaignPanicReleases(t *testing.T) {
	f := newService(t, memlock.NewSpace())
	c := newClient(t, f)
	defer func() {
		if recover() != "boom" {
			t.Error("the panic was swallowed")
		}
		if f.holder(t, "k") != nil {
			t.Error("still held")
		}
	}()
	_ = elect.Campaign(t.Context(), c.Mutex("k"), func(context.Context) error { panic("boom") })
}

// A wait limit ends no campaign, and the candidate does not pause for longer each time.
func TestCampaignWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		held := clienttest.MustLock(t, newClient(t, space.Backend()).Mutex("k"))
		waits := 0
		retried := elect.WithOnRetry(func(err error) {
			waits++
			wantErr(t, "the reason of a retry", err, lock.ErrWaitLimit)
		})
		time.AfterFunc(time.Minute, func() { _ = held.Unlock(context.Background()) })
		start := time.Now()
		err := elect.Campaign(t.Context(), newClient(t, space.Backend()).Mutex("k", lock.WithWait(time.Second)), func(ctx context.Context) error {
			if token, ok := lock.FromContext(ctx).Token(); !ok || token < 2 {
				t.Errorf("token %d, %v; want that of the leader's lease", token, ok)
			}
			return nil
		}, retried)
		if took := time.Since(start); err != nil || waits < 50 || took > 61*time.Second {
			t.Errorf("led after %d waits and %v, %v; want more than 50 waits of a second", waits, took, err)
		}
	})
}

// After ErrResign the candidates that wait lead first.
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
				err := elect.Campaign(t.Context(), m, func(ctx context.Context) error {
					mu.Lock()
					terms = append(terms, name)
					mu.Unlock()
					time.Sleep(time.Minute)
					if n++; n == 3 {
						return nil
					}
					return elect.ErrResign
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // the candidates queue in this order
		}
		all.Wait()
		if got := strings.Join(terms, ""); got != "xyzxyzxyz" {
			t.Errorf("terms %s", got)
		}
	})
}

// The context of a leader that loses its lease ends before another process can lead.
// The leader then campaigns again.
func TestCampaignAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newService(t, memlock.NewSpace())
		c := newClient(t, f, lock.WithTTL(10*time.Second))
		terms := 0
		var reasons []error
		var lost time.Time
		ctx := context.WithValue(t.Context(), ctxKey{}, "value")
		err := elect.Campaign(ctx, c.Mutex("k"), func(ctx context.Context) error {
			if ctx.Value(ctxKey{}) != "value" {
				t.Error("the context lacks the caller's values")
			}
			if terms++; terms > 1 {
				return nil
			}
			f.setFail(func(op string, _ int) error {
				if op == "renew" {
					return errNet
				}
				return nil
			})
			expires := time.Now().Add(f.holder(t, "k").Left)
			<-ctx.Done()
			lost = time.Now()
			if !lost.Before(expires) {
				t.Errorf("the leader's context ended %v after another could lead", lost.Sub(expires))
			}
			wantErr(t, "cause", context.Cause(ctx), lock.ErrLost)
			f.setFail(nil)
			time.Sleep(time.Hour) // slow to stop: the second term must wait for it
			return errWork
		}, elect.WithOnRetry(func(err error) { reasons = append(reasons, err) }))
		if err != nil || terms != 2 || len(reasons) != 1 {
			t.Fatalf("%v after %d terms, %v", err, terms, reasons)
		}
		wantErr(t, "the reason", reasons[0], lock.ErrLost, errNet, errWork)
	})
}

type ctxKey struct{}

// The reason of a retry contains no error that only says that the context has ended.
func TestCampaignAfterLossReturnsContextError(t *testing.T) {
	for _, ret := range []func(context.Context) error{
		func(context.Context) error { return nil },
		func(ctx context.Context) error { return ctx.Err() },
		func(ctx context.Context) error { return fmt.Errorf("stopped: %w", context.Cause(ctx)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newService(t, memlock.NewSpace())
			c := newClient(t, f)
			terms := 0
			var reason error
			err := elect.Campaign(t.Context(), c.Mutex("k"), func(ctx context.Context) error {
				if terms++; terms > 1 {
					return nil
				}
				f.take(t, "k", time.Minute)
				<-ctx.Done()
				return ret(ctx)
			}, elect.WithOnRetry(func(err error) { reason = err }))
			if err != nil || terms != 2 {
				t.Fatalf("%v after %d terms", err, terms)
			}
			wantErr(t, "the reason", reason, lock.ErrLost)
			if strings.Contains(reason.Error(), ";") {
				t.Errorf("the reason repeats itself: %v", reason)
			}
		})
	}
}

func TestCampaignContextEnds(t *testing.T) {
	for _, ret := range []error{nil, context.Canceled, errWork} {
		synctest.Test(t, func(t *testing.T) {
			f := newService(t, memlock.NewSpace())
			c := newClient(t, f)
			why := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(t.Context())
			start := time.Now()
			time.AfterFunc(time.Minute, func() { cancel(why) })
			err := elect.Campaign(ctx, c.Mutex("k"), func(ctx context.Context) error {
				<-ctx.Done()
				wantErr(t, "cause", context.Cause(ctx), why)
				if f.holder(t, "k") == nil {
					t.Error("released while the function still runs")
				}
				return ret
			})
			if ret == errWork {
				wantErr(t, "Campaign", err, context.Canceled, why, errWork)
			} else if err != nil {
				t.Errorf("a leader that was shut down in order returned %v", err)
			}
			if f.holder(t, "k") != nil || time.Since(start) != time.Minute {
				t.Errorf("held by %v, ended after %v", f.holder(t, "k"), time.Since(start))
			}
			// ctx ends while Campaign waits for m
			f.take(t, "k", time.Hour)
			wait, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			err = elect.Campaign(wait, c.Mutex("k"), func(context.Context) error { t.Error("led"); return nil })
			wantErr(t, "Campaign", err, context.DeadlineExceeded, lock.ErrLocked)
		})
	}
}

// lateContext ends a second after its deadline, as timers of one instant fire in any
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
		err := elect.Campaign(lateContext{late, deadline}, newClient(t, memlock.New()).Mutex("k"), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("a leader whose context ended by its deadline returned %v", err)
		}
	})
}

func TestCampaignBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newService(t, memlock.NewSpace())
		c := newClient(t, f)
		var times []time.Time
		f.setFail(func(op string, n int) error {
			if op != "acquire" {
				return nil
			}
			times = append(times, time.Now())
			if n <= 8 {
				return errNet
			}
			return nil
		})
		retries := 0
		err := elect.Campaign(t.Context(), c.Mutex("k"), func(context.Context) error { return nil },
			elect.WithBackoff(time.Second, 8*time.Second), elect.WithOnRetry(func(err error) {
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

func TestCampaignPermanentErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newService(t, memlock.NewSpace())
		c := newClient(t, f)
		never := func(context.Context) error { t.Error("led"); return nil }
		wantErr(t, "bad name", elect.Campaign(t.Context(), c.Mutex(""), never), lock.ErrInvalid)
		wantErr(t, "bad pause", elect.Campaign(t.Context(), c.Mutex("k"), never, elect.WithBackoff(0, time.Second)), lock.ErrInvalid)
		wantErr(t, "bad pause", elect.Campaign(t.Context(), c.Mutex("k"), never, elect.WithBackoff(time.Second, time.Millisecond)), lock.ErrInvalid)
		l, err := c.Mutex("k").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "under its own lease", elect.Campaign(l.Context(), c.Mutex("k"), never), lock.ErrLocked)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = elect.Campaign(t.Context(), c.Mutex("k"), func(ctx context.Context) error {
			go func() { _ = c.Close(context.Background()) }()
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, "closed while leading", err, lock.ErrClosed)
		if errors.Is(err, context.Canceled) {
			t.Errorf("closed while leading: got %v, which must not match %v", err, context.Canceled)
		}
		wantErr(t, "closed", elect.Campaign(t.Context(), c.Mutex("k"), never), lock.ErrClosed)
	})
}
