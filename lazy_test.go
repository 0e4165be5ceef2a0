package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// lateService is a service of the scheme "late" that can be absent.
type lateService struct {
	mu       sync.Mutex
	err      error // of each attempt to open; nil: the service is up
	attempts int
	caps     func(*backend.Capabilities)
	block    chan struct{} // attempts wait for it, whatever their context says
	closed   int
	space    *memlock.Space
}

var lateOne lateService

func init() {
	backend.Register("late", func(ctx context.Context, u *backend.URL) (backend.Backend, error) {
		u.Params.Int("size", 1, 1, 10)
		if err := u.Params.Err(); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return lateOne.open()
	})
}

func (s *lateService) open() (backend.Backend, error) {
	s.mu.Lock()
	s.attempts++
	block := s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return &lateBackend{s.space.Backend(), s}, nil
}

// reset makes the service absent, with err as the error of connecting to it.
func (s *lateService) reset(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.attempts, s.caps, s.block, s.closed, s.space = err, 0, nil, nil, 0, memlock.NewSpace()
}

func (s *lateService) come(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// counts returns how often the service was connected to, and how many backends were closed.
func (s *lateService) counts() (attempts, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts, s.closed
}

// declare sets what the service declares from now on.
func (s *lateService) declare(caps func(*backend.Capabilities)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caps = caps
}

type lateBackend struct {
	*memlock.Backend
	s *lateService
}

func (b *lateBackend) Capabilities() backend.Capabilities {
	c := b.Backend.Capabilities()
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if c.Name = "late"; b.s.caps != nil {
		b.s.caps(&c)
	}
	return c
}

func (b *lateBackend) Close(ctx context.Context) error {
	b.s.mu.Lock()
	b.s.closed++
	b.s.mu.Unlock()
	return b.Backend.Close(ctx)
}

var errRefused = errors.New("connect 10.0.0.1:1: connection refused")

// openLate opens a client of the absent service.
func openLate(t *testing.T, url string, opts ...lock.Option) *lock.Client {
	t.Helper()
	start := time.Now()
	c, err := lock.Open(t.Context(), url, append([]lock.Option{lock.WithLogger(nil)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 0 {
		t.Errorf("Open took %v", took)
	}
	return c
}

// A client that is opened before its service locks within half a second after it is up.
func TestLazyOpen(t *testing.T) {
	for name, opts := range map[string][]lock.Option{"": nil, "local hand-off": {lock.WithLocalHandOff()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lateOne.reset(errRefused)
				out := defaultLog(t)
				var events []string
				note := func(what string) func(context.Context, lock.Event) {
					return func(_ context.Context, e lock.Event) {
						events = append(events, what+" "+e.Backend+" "+e.Name+" "+e.Wait.Round(time.Second).String())
					}
				}
				c, err := lock.Open(t.Context(), "late://host?lazy=true&size=2", append(opts, lock.WithTTL(ttl),
					lock.WithObserver(&lock.Observer{Acquired: note("acquired"), Failed: note("failed")}))...)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close(context.Background())
				synctest.Wait()
				if caps := c.Capabilities(); caps.Name != "late" || caps.Scope != 0 || caps.MinTTL != 0 {
					t.Errorf("capabilities before the service is known: %+v", caps)
				}
				for what, err := range map[string]error{"Ping": c.Ping(t.Context()), "TryLock": try(c.Mutex("k"))} {
					if err == nil || !strings.Contains(err.Error(), "not open yet: connect 10.0.0.1:1") {
						t.Errorf("%s: %v", what, err)
					}
				}
				wantErr(t, "a name that can never be locked", try(c.Mutex("")), lock.ErrInvalid)
				events = nil

				time.AfterFunc(20*time.Second, func() { lateOne.come(nil) })
				start := time.Now()
				early := c.Mutex("k", lock.WithMetadata("early"))
				l, err := early.Lock(t.Context())
				if took := time.Since(start); err != nil || took < 20*time.Second || took > 20500*time.Millisecond {
					t.Fatalf("Lock after %v: %v; want a lease within half a second after the service is up", took, err)
				}
				if len(events) != 1 || !strings.HasPrefix(events[0], "acquired late k 20s") {
					t.Errorf("events %q", events)
				}
				wantErr(t, "a held lock", try(c.Mutex("k")), lock.ErrLocked)
				if info, err := c.Inspect(t.Context(), "k"); err != nil || info.Holder == nil || info.Holder.Metadata != "early" {
					t.Errorf("Inspect: %+v, %v", info, err)
				}
				time.Sleep(2 * ttl)
				wantHeld(t, l)
				if err := errors.Join(l.Extend(t.Context(), ttl), l.Unlock(t.Context()), c.Ping(t.Context())); err != nil {
					t.Error(err)
				}
				if c.Capabilities().Scope != backend.ScopeProcess {
					t.Errorf("capabilities: %+v", c.Capabilities())
				}
				wantLines(t, "the log", out.take(), `msg="lock: the backend is not open yet, will try again" backend=late err="connect 10.0.0.1:1`,
					`msg="lock: the backend is open" backend=late`)
				if n, _ := lateOne.counts(); n > 100 {
					t.Errorf("%d attempts to open in 20 s", n)
				}
			})
		})
	}
}

func try(m lock.Mutex) error {
	_, err := m.TryLock(context.Background())
	return err
}

// What can be known without the service fails at once.
func TestLazyOpenRefusesAtOnce(t *testing.T) {
	lateOne.reset(errRefused)
	for url, opts := range map[string][]lock.Option{
		"late://host?lazy=true&tll=1s":  nil,
		"late://host?lazy=true&size=11": nil,
		"late://host?lazy=yes":          nil,
		"late://host?lazy=true&ttl=0s":  nil,
		"latte://host?lazy=true":        nil,
		"late://host?lazy=true&ttl=1ms": nil,
		"late://h":                      {lock.WithLazyOpen(), lock.WithMinHold(-1)},
		"late://host":                   {lock.WithLazyOpen(), lock.WithMetadata("\x00")},
	} {
		c, err := lock.Open(t.Context(), url, opts...)
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
			_ = c.Close(t.Context())
		}
	}
	if n, _ := lateOne.counts(); n != 0 {
		t.Errorf("%d attempts to connect", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := lock.Open(ctx, "late://host?lazy=true")
	wantErr(t, "Open under a context that has ended", err, context.Canceled)
}

// A wait for the service ends with its context or wait limit, and says what failed.
func TestLazyOpenWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lateOne.reset(errRefused)
		c := openLate(t, "late://host?wait=2s", lock.WithLazyOpen())
		defer c.Close(t.Context())
		start := time.Now()
		_, err := c.Mutex("k").Lock(t.Context())
		wantWaitLimit(t, "Lock", err, start, 2*time.Second)
		wantErr(t, "Lock", err, errRefused)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Mutex("k").Lock(ctx)
		wantErr(t, "Lock with a deadline", err, context.DeadlineExceeded, errRefused)
		if n := strings.Count(err.Error(), "refused"); n != 1 {
			t.Errorf("%q", err)
		}
		// The limit is for the backend and the lock together.
		time.AfterFunc(1500*time.Millisecond, func() { lateOne.come(nil) })
		mustLock(t, newClient(t, lateOne.space.Backend()).Mutex("k"))
		start = time.Now()
		_, err = c.Mutex("k").Lock(t.Context())
		wantWaitLimit(t, "Lock of a held lock", err, start, 2*time.Second)
		wantErr(t, "Lock of a held lock", err, lock.ErrLocked)
	})
}

// Close ends waits for the service, and what is opened afterwards is closed.
func TestLazyOpenClose(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			lateOne.reset(errRefused)
			if ignores { // an attempt hangs, and ignores its context
				lateOne.reset(nil)
				lateOne.block = make(chan struct{})
			}
			c := openLate(t, "late://host?lazy=true")
			failed := make(chan error, 2)
			go func() { _, err := c.Mutex("k").Lock(context.Background()); failed <- err }()
			go func() { failed <- try(c.Mutex("k")) }()
			synctest.Wait()
			start := time.Now()
			if err := c.Close(t.Context()); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("Close: %v after %v", err, time.Since(start))
			}
			if ignores {
				wantErr(t, "TryLock", <-failed, lock.ErrClosed)
			} else if err := <-failed; !errors.Is(err, errRefused) {
				t.Errorf("TryLock: %v", err)
			}
			wantErr(t, "Lock", <-failed, lock.ErrClosed)
			wantErr(t, "Ping", c.Ping(t.Context()), lock.ErrClosed)
			if ignores {
				close(lateOne.block)
				synctest.Wait()
				if _, closed := lateOne.counts(); closed != 1 {
					t.Errorf("the backend that was opened after Close was closed %d times", closed)
				}
			}
			attempts, _ := lateOne.counts()
			time.Sleep(time.Minute)
			if n, _ := lateOne.counts(); n != attempts {
				t.Error("it goes on to open")
			}
		})
	}
}

// What does not fit grants nothing, says so at once, and is tried again: the service may change.
func TestLazyOpenDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lateOne.reset(nil)
		lateOne.declare(func(c *backend.Capabilities) { c.Scope = backend.ScopeProcess })
		c := openLate(t, "late://host?lazy=true", lock.WithRequire(backend.RequireMachineScope))
		defer c.Close(t.Context())
		start := time.Now()
		_, err := c.Mutex("k").Lock(t.Context())
		wantErr(t, "Lock", err, errors.ErrUnsupported)
		if time.Since(start) > 0 || strings.Count(err.Error(), "late") != 2 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		time.Sleep(time.Minute)
		if attempts, closed := lateOne.counts(); closed != attempts || attempts > 30 {
			t.Errorf("%d attempts, %d backends closed", attempts, closed)
		}
		lateOne.declare(func(c *backend.Capabilities) { c.Scope, c.MinTTL = backend.ScopeMachine, time.Minute })
		time.Sleep(6 * time.Second)
		wantErr(t, "a TTL below the minimum", try(c.Mutex("k")), lock.ErrInvalid)
		lateOne.declare(func(c *backend.Capabilities) { c.Scope = backend.ScopeMachine })
		time.Sleep(6 * time.Second)
		if err := try(c.Mutex("k")); err != nil {
			t.Error(err)
		}
	})
}

// A backend without a service is open at once.
func TestLazyOpenWithoutAService(t *testing.T) {
	lazy := true
	c, err := lock.OpenConfig(t.Context(), lock.Config{URL: "mem:", Lazy: &lazy})
	if err != nil || c.Capabilities().Name != "mem" || c.Capabilities().Scope != backend.ScopeProcess {
		t.Fatal(err)
	}
	if err := errors.Join(try(c.Mutex("k")), c.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
