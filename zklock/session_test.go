package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// TestReconnectWithWatches breaks connections while there are watches, and requests
// that wait for the next connection. What would fail is the race detector.
func TestReconnectWithWatches(t *testing.T) {
	t.Parallel()
	const reconnects = 200
	f := newFakeServer(t, 25)
	s := newTestSession(t, f, time.Minute)
	for w := s.watch(t.Context(), "/held"); w.err != nil; w = s.watch(t.Context(), "/held") {
		if s.ended() != nil {
			t.Fatal(w.err)
		}
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for f.hellos.Load() < reconnects && s.ended() == nil {
				_, _, _ = call(t.Context(), s, false, func(c *zk.Conn) (bool, error) {
					ok, _, err := c.Exists("/any")
					return ok, err
				})
			}
		})
	}
	wg.Wait()
	if err := s.ended(); err != nil {
		t.Error(err)
	}
	if f.renewals.Load() == 0 || f.blind.Load() != 0 {
		t.Errorf("watches were set anew %d times on %d connections, %d times without what had been seen", f.renewals.Load(), f.hellos.Load(), f.blind.Load())
	}
}

// TestManySessions is about the beginning of sessions, likewise.
func TestManySessions(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	for range 100 {
		s := newTestSession(t, f, time.Minute)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if w := s.watch(t.Context(), "/held"); w.err != nil {
					t.Error(w.err)
				}
			})
		}
		wg.Wait()
		s.finish(errRetired)
	}
}

// TestSilentServer: a server that gets everything, but whose answers are lost, is
// left alone after a timeout, so that it can end the session.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	s := newTestSession(t, f, 3*time.Second)
	f.mute.Store(true)
	f.cut() // the session is resumed from the beginning of its last timeout on
	select {
	case <-s.over:
	case <-time.After(time.Minute):
		t.Fatalf("a silent server is still tried, %d times by now", f.hellos.Load())
	}
	if err := s.ended(); !errors.Is(err, errSilent) {
		t.Errorf("got %v", err)
	}
	if f.hellos.Load() < 2 {
		t.Error("nobody tried to resume the session")
	}
}

// TestOpenedOnce: who waits for another to open a session shares the failure.
func TestOpenedOnce(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	b := newBackend(defaults())
	b.own, b.addrs, b.dial, b.dialTimeout = true, []string{f.listener.Addr().String()}, dialTCP(nil), 10*time.Second
	b.opt.wait = 1500 * time.Millisecond
	defer func() {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	_ = f.listener.Close()
	if lostConnection(notOpened{&net.OpError{Err: net.ErrClosed}}) {
		t.Error("it would be tried again")
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			req := backend.Request{Key: "key", Owner: fmt.Sprintf("%032x", i), TTL: time.Minute}
			acquire := b.Acquire
			if i%2 == 0 {
				acquire = b.TryAcquire
			}
			if _, err := acquire(t.Context(), req); !errors.As(err, &notOpened{}) {
				t.Errorf("without a server: want notOpened, got %v", err)
			}
		})
	}
	wg.Wait()
	if d := time.Since(begun); d > 5*time.Second {
		t.Errorf("it took %v until all knew that there is no server, %v for one", d, b.opt.wait)
	}
}

// awaited tells, once, that somebody waits for its end.
type awaited struct {
	context.Context
	once sync.Once
	told chan struct{}
}

func (a *awaited) Done() <-chan struct{} {
	a.once.Do(func() { close(a.told) })
	return a.Context.Done()
}

// TestOpenerGivesUp: that is no failure for those who wait.
func TestOpenerGivesUp(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	f.mute.Store(true)
	b := newBackend(defaults())
	dialed := make(chan struct{}, 100)
	b.own, b.addrs, b.dialTimeout = true, []string{f.listener.Addr().String()}, 10*time.Second
	b.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		dialed <- struct{}{}
		return dialTCP(nil)(ctx, addr)
	}
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := b.session(ctx, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up: %v", err)
		}
	})
	<-dialed
	second := &awaited{Context: t.Context(), told: make(chan struct{})}
	wg.Go(func() {
		s, err := b.session(second, time.Minute)
		if err != nil {
			t.Errorf("who did not: %v", err)
			return
		}
		s.unuse()
	})
	<-second.told
	f.mute.Store(false)
	cancel()
	wg.Wait()
}

// TestEndedBeforeItBegan: an attempt whose context ends at once is not kept.
func TestEndedBeforeItBegan(t *testing.T) {
	t.Parallel()
	b := newBackend(defaults())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 100 {
		a := b.begin(backend.Request{Key: "key", Owner: fmt.Sprintf("%032x", i), TTL: time.Minute})
		if err := a.lock(ctx); err != nil {
			t.Fatalf("nobody works on it, and it cannot be forgotten: %v", err)
		}
		a.unlock()
	}
}

// TestUnusedFromTheBeginning: who opened a session may have no more time to use it.
func TestUnusedFromTheBeginning(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	b := newBackend(defaults())
	b.own, b.addrs, b.dial, b.dialTimeout = true, []string{f.listener.Addr().String()}, dialTCP(nil), 10*time.Second
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := b.openSession(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	s := b.sessions[time.Minute]
	b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil || !s.idle.Stop() {
		t.Error("nothing will end it")
	}
}
