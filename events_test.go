package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// ledger checks that events come in pairs.
type ledger struct {
	mu       sync.Mutex
	waiting  int
	held     map[string]bool // by owner
	calls    int             // that have ended
	wrong    []string
	sequence []string
}

func (g *ledger) observer() *lock.Observer {
	g.held = map[string]bool{}
	note := func(what string, change func(lock.Event)) func(context.Context, lock.Event) {
		return func(_ context.Context, e lock.Event) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.sequence = append(g.sequence, what)
			change(e)
		}
	}
	called := func(e lock.Event) {
		g.calls++
		if e.Waited {
			g.waiting--
		}
	}
	ended := func(e lock.Event) {
		if !g.held[e.Owner] {
			g.wrong = append(g.wrong, "an end of what was not held")
		}
		delete(g.held, e.Owner)
	}
	return &lock.Observer{
		Waiting: note("waiting", func(lock.Event) { g.waiting++ }),
		Acquired: note("acquired", func(e lock.Event) {
			called(e)
			if g.held[e.Owner] || e.Owner == "" {
				g.wrong = append(g.wrong, "owner "+e.Owner+" twice")
			}
			g.held[e.Owner] = true
		}),
		Failed:   note("failed", called),
		Released: note("released", ended),
		Lost:     note("lost", ended),
	}
}

func (g *ledger) want(t *testing.T, sequence string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := strings.Join(g.sequence, ", "); got != sequence {
		t.Errorf("events: %s\nwant    %s", got, sequence)
	}
	if g.waiting != 0 || len(g.held) != 0 || len(g.wrong) != 0 {
		t.Errorf("%d waiting, %d held, %q", g.waiting, len(g.held), g.wrong)
	}
}

func TestEventsAddUpToZero(t *testing.T) {
	var g ledger
	var calm atomic.Bool
	boom := func(context.Context, lock.Event) {
		if !calm.Load() && rand.N(8) == 0 {
			panic("boom")
		}
	}
	space := memlock.NewSpace()
	c := newClient(t, space.Backend(), lock.WithTTL(time.Minute),
		lock.WithObserver(&lock.Observer{Waiting: boom, Acquired: boom, Failed: boom, Released: boom}), lock.WithObserver(g.observer()))
	other := newClient(t, space.Backend()) // whose Break ends holds
	var calls atomic.Int64
	once := func(m lock.Mutex) {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
		defer cancel()
		take := m.Lock
		if rand.N(4) == 0 {
			take = m.TryLock
		}
		defer func() { _ = recover() }()
		calls.Add(1)
		l, err := take(ctx)
		if err != nil {
			return
		}
		defer func() { _ = l.Unlock(ctx) }()
		if rand.N(4) == 0 {
			_, _ = other.Break(context.Background(), m.Name())
		}
		if rand.N(8) == 0 {
			panic("a holder's")
		}
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				once(c.Mutex([]string{"a", "b"}[rand.N(2)]))
			}
		})
	}
	wg.Wait()
	calm.Store(true)
	closing := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			<-closing
			for range 20 {
				once(c.Mutex("a"))
			}
		})
	}
	mustLock(t, c.Mutex("ended by Close"))
	calls.Add(1)
	close(closing)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting != 0 || len(g.held) != 0 || len(g.wrong) != 0 || g.calls != int(calls.Load()) {
		t.Fatalf("%d waiting, %d held, %d calls ended of %d, %q", g.waiting, len(g.held), g.calls, calls.Load(), g.wrong)
	}
}

func TestLossBeforeAcquiredIsReportedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var g ledger
		c := newClient(t, early{f}, lock.WithObserver(g.observer()))
		l := mustLock(t, c.Mutex("k"))
		wantErr(t, "Err", l.Err(), lock.ErrLost)
		g.want(t, "acquired, lost")
	})
}

// early reports the loss of a grant before it returns the grant.
type early struct{ *fake }

func (e early) TryAcquire(ctx context.Context, r backend.Request) (backend.Grant, error) {
	g, err := e.fake.TryAcquire(ctx, r)
	r.OnLost(backend.ErrLost)
	return g, err
}

func TestCloseDuringAcquiredIsReportedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g ledger
		slow := &lock.Observer{Acquired: func(context.Context, lock.Event) { time.Sleep(time.Second) }}
		c := newClient(t, newFake(), lock.WithObserver(slow), lock.WithObserver(g.observer()))
		time.AfterFunc(time.Second/2, func() { _ = c.Close(context.Background()) })
		if _, err := c.Mutex("k").TryLock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		g.want(t, "acquired, released")
	})
}

func TestPanicOfOneObserverSkipsNoOther(t *testing.T) {
	boom := func(context.Context, lock.Event) { panic("boom") }
	for _, tt := range []struct {
		name   string
		o      lock.Observer
		others string
	}{
		{"acquired", lock.Observer{Acquired: boom}, "acquired, released"},
		{"released", lock.Observer{Released: boom}, "acquired, released"},
		{"waiting", lock.Observer{Waiting: boom}, "waiting, failed"},
		{"failed", lock.Observer{Failed: boom}, "waiting, failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				space := memlock.NewSpace()
				var g ledger
				c := newClient(t, space.Backend(), lock.WithObserver(&tt.o), lock.WithObserver(nil), lock.WithObserver(g.observer()))
				stranger := newClient(t, space.Backend())
				if strings.HasPrefix(tt.others, "waiting") {
					mustLock(t, stranger.Mutex("k"))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic was swallowed")
						}
					}()
					l, err := c.Mutex("k").Lock(ctx)
					if err == nil {
						_ = l.Unlock(ctx)
					}
				}()
				g.want(t, tt.others)
				synctest.Wait()
				if info, err := stranger.Inspect(t.Context(), "k"); err != nil || len(info.Waiters) > 0 {
					t.Errorf("%d waiters are left, %v", len(info.Waiters), err)
				}
			})
		})
	}
}

// late says that it waits when the attempt is over.
type late struct {
	*fake
	onWait func(*backend.LockedError)
}

func (b *late) Acquire(_ context.Context, r backend.Request) (backend.Grant, error) {
	b.onWait = r.OnWait
	return nil, errNet
}

func TestNoWaitingAfterTheEnd(t *testing.T) {
	var g ledger
	b := &late{fake: newFake()}
	_, err := newClient(t, b, lock.WithObserver(g.observer())).Mutex("k").Lock(t.Context())
	if !errors.Is(err, errNet) {
		t.Fatal(err)
	}
	b.onWait(&backend.LockedError{})
	g.want(t, "failed")
}

// watchable is a service that notifies once of each watch.
type watchable struct{ *memlock.Backend }

func (watchable) WatchChanges(ctx context.Context, _ string, changed func()) error {
	changed()
	<-ctx.Done()
	return ctx.Err()
}

// WatchChanges watches through local hand-off until its context ends or the client is closed.
func TestWatchChanges(t *testing.T) {
	for end, want := range map[string]error{"context": context.Canceled, "close": lock.ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			c, err := lock.New(watchable{memlock.New()}, lock.WithLocalHandOff())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changed, ended := make(chan struct{}, 1), make(chan error, 1)
			go func() { ended <- c.WatchChanges(ctx, "k", func() { changed <- struct{}{} }) }()
			<-changed
			time.Sleep(time.Minute) // longer than any bound of a request
			if len(ended) > 0 || len(changed) > 0 {
				t.Fatalf("after a minute: want it to watch, got %d ends and %d more watches", len(ended), len(changed))
			}
			if end == "context" {
				cancel()
			} else if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("%s: want %v, got %v", end, want, err)
			}
			_ = c.Close(t.Context())
		})
	}
}

func TestWatchChangesRefused(t *testing.T) {
	c, err := lock.New(memlock.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for name, want := range map[string]error{"k": errors.ErrUnsupported, "": lock.ErrInvalid} {
		if err := c.WatchChanges(t.Context(), name, func() { t.Error("changed was called") }); !errors.Is(err, want) {
			t.Errorf("of %q: want %v, got %v", name, want, err)
		}
	}
}
