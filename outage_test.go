package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// lines collects what is logged at level Info and above.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

// unanswered lets requests that begin in an outage hang until their context ends.
func unanswered(from, to time.Time) func(context.Context, string, int) (error, bool) {
	return func(ctx context.Context, _ string, _ int) (error, bool) {
		if now := time.Now(); now.Before(from) || now.After(to) {
			return nil, true
		}
		<-ctx.Done()
		return backend.Uncertain(ctx.Err()), false
	}
}

// An outage is logged in a few lines, whatever the number of leases.
func TestLinesOfAnOutage(t *testing.T) {
	const leases, outage = 1000, 8 * time.Second
	for name, c := range map[string]struct {
		ttl      time.Duration
		min, max int
		last     string
	}{
		"survived": {20 * time.Second, 2, 2, "leases=1000"},
		"lost":     {5 * time.Second, 5, 6, "lost=1000"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, out := newFake(), &lines{}
				log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo}))
				client := newClient(t, f, lock.WithTTL(c.ttl), lock.WithLogger(log))
				held := lockMany(t, client, leases)
				start := time.Now()
				f.setSpoil(unanswered(start, start.Add(outage)))
				time.Sleep(c.ttl)
				if name == "survived" {
					wantHeld(t, held...)
				}
				time.Sleep(c.ttl)
				out.mu.Lock()
				defer out.mu.Unlock()
				if n := len(out.all); n < c.min || n > c.max {
					t.Errorf("%d lines, want %d to %d:\n%s", n, c.min, c.max, strings.Join(out.all[:min(n, 20)], ""))
				} else if last := out.all[n-1]; !strings.Contains(last, c.last) {
					t.Errorf("the last line is %s, want %s in it", last, c.last)
				}
				runtime.KeepAlive(held) // not forgotten
			})
		})
	}
}

// One failed renewal that the next one repairs is not logged above Debug.
func TestASingleFailedRenewalIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, out := newFake(), &lines{}
		log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo}))
		client := newClient(t, f, lock.WithTTL(6*time.Second), lock.WithLogger(log))
		f.setSpoil(func(_ context.Context, op string, n int) (error, bool) {
			if op == "renew" && n%3 == 1 {
				return backend.Uncertain(errNet), false
			}
			return nil, true
		})
		l := mustLock(t, client.Mutex("k"))
		time.Sleep(time.Minute)
		wantHeld(t, l)
		if len(out.all) > 0 {
			t.Errorf("logged: %s", out.all)
		}
	})
}

// Goroutines that go on to ask for locks during an outage cost no lease, and leave no more
// goroutines and cleanups than requests that were sent.
func TestLocksInAnOutage(t *testing.T) {
	const askers, leases, lockTTL = 2000, 100, 5 * time.Second
	const outage = lockTTL * 6 / 10
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, batchAbandoner{f}, lock.WithTTL(lockTTL))
		held := lockMany(t, c, leases)
		before := runtime.NumGoroutine()
		start := time.Now()
		slots := make(chan struct{}, 64) // connections; a request that gets none is not sent
		down := unanswered(start, start.Add(outage))
		var sent int // guarded by f.mu
		f.setSpoil(func(ctx context.Context, op string, n int) (error, bool) {
			if op != "acquire" {
				return down(ctx, op, n)
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				return backend.NotExecuted(ctx.Err()), false
			}
			f.mu.Lock()
			sent++
			f.mu.Unlock()
			return down(ctx, op, n)
		})
		var all sync.WaitGroup
		for i := range askers {
			all.Go(func() {
				for time.Since(start) < outage {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					if l, err := c.Mutex(fmt.Sprint("asked ", i)).Lock(ctx); err == nil {
						_ = l.Unlock(t.Context())
					}
					cancel()
				}
			})
		}
		most := 0
		for time.Since(start) < outage {
			most = max(most, runtime.NumGoroutine()-before)
			time.Sleep(50 * time.Millisecond)
		}
		all.Wait()
		time.Sleep(2 * time.Second)
		wantHeld(t, held...)
		abandoned, requests := f.count("abandoned")+f.count("abandon"), f.count("abandon")+f.count("abandon batch")
		t.Logf("%d goroutines at most; %d requests sent of %d, %d abandoned in %d requests", most, sent, f.count("acquire"), abandoned, requests)
		if most > 3*askers {
			t.Errorf("%d goroutines at most, of %d that ask", most, askers)
		}
		if abandoned > sent+requests || requests > sent {
			t.Errorf("%d attempts sent, %d abandoned in %d requests", sent, abandoned, requests)
		}
		for i := range askers {
			if h := f.holder(fmt.Sprint("asked ", i)); h != "" {
				t.Fatalf("a lock is held that no goroutine got: %s", h)
			}
		}
	})
}

// While the service does not acknowledge that an attempt is abandoned, no further attempt on the lock is sent, however
// often a program calls Lock. When it answers again, a Lock that waits goes on.
func TestOneAttemptOfALockInAnOutage(t *testing.T) {
	const locks, outage = 20, 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := newClient(t, f, lock.WithTTL(time.Minute))
		start := time.Now()
		f.setSpoil(unanswered(start, start.Add(outage)))
		var all sync.WaitGroup
		for i := range locks {
			all.Go(func() {
				m := c.Mutex(fmt.Sprint("asked ", i))
				for n := 0; time.Since(start) < outage-time.Second; n++ {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					_, err := m.Lock(ctx)
					cancel()
					wantErr(t, "Lock", err, context.DeadlineExceeded)
					if unknown := errors.Is(err, lock.ErrUncertain); unknown != (n == 0) {
						t.Errorf("call %d of %s: outcome unknown: %v, want it of the first call only: %v", n, m.Name(), unknown, err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				if _, err := m.Lock(ctx); err != nil {
					t.Errorf("3 s after the outage: %v", err)
				}
			})
		}
		all.Wait()
		if n := f.count("acquire"); n != 2*locks {
			t.Errorf("%d attempts were sent for %d locks, want one of each in the outage and one after it", n, locks)
		}
	})
}

// far is a service that is half of roundTrip away, each way. Time is the bubble's.
type far struct {
	*memlock.Backend
	mu    sync.Mutex
	calls map[string]int
	away  time.Duration // there and back; zero: roundTrip
	// spoil, if set, makes an operation fail after it was executed.
	spoil func(op string) error
}

const roundTrip = 4 * time.Millisecond

func newFar(s *memlock.Space) *far { return &far{Backend: s.Backend(), calls: map[string]int{}} }

func (f *far) exchange(ctx context.Context, op string, execute func() error) error {
	f.mu.Lock()
	f.calls[op]++
	spoil, away := f.spoil, cmp.Or(f.away, roundTrip)
	f.mu.Unlock()
	time.Sleep(away / 2) // of the bubble's clock
	err := execute()
	if op != "wait" || ctx.Err() == nil {
		time.Sleep(away / 2)
	}
	if spoil != nil {
		if spoilt := spoil(op); spoilt != nil {
			return spoilt
		}
	}
	return err
}

func (f *far) granted(g backend.Grant) *farGrant { return &farGrant{g.(keeperGrant), f} }

func (f *far) TryAcquire(ctx context.Context, req backend.Request) (out backend.Grant, err error) {
	err = f.exchange(ctx, "try", func() error {
		g, err := f.Backend.TryAcquire(ctx, req)
		if err == nil {
			out = f.granted(g)
		}
		return err
	})
	return out, err
}

func (f *far) Acquire(ctx context.Context, req backend.Request) (out backend.Grant, err error) {
	err = f.exchange(ctx, "wait", func() error {
		g, err := f.Backend.Acquire(ctx, req)
		if err == nil {
			out = f.granted(g)
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return nil, backend.Uncertain(err)
	}
	return out, err
}

func (f *far) Abandon(ctx context.Context, req backend.Request) error {
	return f.exchange(ctx, "abandon", func() error { return f.Backend.Abandon(ctx, req) })
}

func (f *far) AbandonBatch(ctx context.Context, reqs []backend.Request) (errs []error) {
	_ = f.exchange(ctx, "abandons", func() error { errs = f.Backend.AbandonBatch(ctx, reqs); return nil })
	return errs
}

func (f *far) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

type keeperGrant interface {
	backend.Grant
	backend.Keeper
}

type farGrant struct {
	keeperGrant
	f *far
}

// Until counts from before the request, which is half of the round trip.
func (g *farGrant) Until() time.Time {
	return g.keeperGrant.Until().Add(-cmp.Or(g.f.away, roundTrip) / 2)
}

func (g *farGrant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.f.exchange(ctx, "renew", func() error { return g.keeperGrant.Renew(ctx, ttl) })
}

func (g *farGrant) Release(ctx context.Context) error {
	return g.f.exchange(ctx, "release", func() error { return g.keeperGrant.Release(ctx) })
}

// together renews many at once, as long as they are its own.
type together struct{ *far }

func (f together) RenewBatch(ctx context.Context, all []backend.Renewal) []error {
	errs := make([]error, len(all))
	err := f.exchange(ctx, "batch", func() error {
		for i, r := range all {
			if g, ok := r.Grant.(*farGrant); ok {
				errs[i] = g.keeperGrant.Renew(ctx, r.TTL)
			} else {
				errs[i] = backend.ErrInvalid
			}
		}
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}
