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
// that wait for the next connection. The race detector reports a failure.
func TestReconnectWithWatches(t *testing.T) {
	t.Parallel()
	const reconnects = 200
	f := newFakeServer(t, 25)
	s := newTestSession(t, f, time.Minute)
	for {
		_, err := s.watch(t.Context(), "/held")
		if err == nil {
			break
		}
		if s.endErr() != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for f.handshakes.Load() < reconnects && s.endErr() == nil {
				_, _, _ = call(t.Context(), s, func(c *zk.Conn) (bool, error) {
					ok, _, err := c.Exists("/any")
					return ok, err
				})
			}
		})
	}
	wg.Wait()
	if err := s.endErr(); err != nil {
		t.Error(err)
	}
	if f.setWatches.Load() == 0 || f.withoutZxid.Load() != 0 {
		t.Errorf("watches were set again %d times on %d connections, %d times without a zxid", f.setWatches.Load(), f.handshakes.Load(), f.withoutZxid.Load())
	}
}

// TestManySessions does the same for new sessions.
func TestManySessions(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	for range 100 {
		s := newTestSession(t, f, time.Minute)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := s.watch(t.Context(), "/held"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s.end(errIdleSession)
	}
}

// TestSilentServer loses all replies of a server. After a timeout the session is not
// resumed any more, so that the server can end it.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	s := newTestSession(t, f, 3*time.Second)
	f.silent.Store(true)
	f.cut() // the client tries to resume the session
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatalf("the client still tries to resume the session, after %d times", f.handshakes.Load())
	}
	if err := s.endErr(); !errors.Is(err, errNoAnswer) {
		t.Errorf("got %v", err)
	}
	if f.handshakes.Load() < 2 {
		t.Error("the client did not try to resume the session")
	}
}

// TestOpenedOnce: all requests for a session share the failure to open it.
func TestOpenedOnce(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	b := newTestBackend(f)
	b.opt.openTimeout = 1500 * time.Millisecond
	defer func() {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	_ = f.listener.Close()
	if (&retries{}).allow(notOpened{&net.OpError{Err: net.ErrClosed}}) {
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
		t.Errorf("all failed after %v, want about %v", d, b.opt.openTimeout)
	}
}

// observedContext closes awaited when Done is called.
type observedContext struct {
	context.Context
	once    sync.Once
	awaited chan struct{}
}

func (c *observedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.awaited) })
	return c.Context.Done()
}

// TestFirstCallerGivesUp: the session is still opened for the second caller.
func TestFirstCallerGivesUp(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	f.silent.Store(true)
	b := newTestBackend(f)
	dialed := make(chan struct{}, 100)
	b.opt.dial = func(ctx context.Context, addr string) (net.Conn, error) {
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
			t.Errorf("the first caller: %v", err)
		}
	})
	<-dialed
	second := &observedContext{Context: t.Context(), awaited: make(chan struct{})}
	wg.Go(func() {
		s, err := b.session(second, time.Minute)
		if err != nil {
			t.Errorf("the second caller: %v", err)
			return
		}
		s.release()
	})
	<-second.awaited
	cancel()
	f.silent.Store(false)
	f.cut() // the client connects again
	wg.Wait()
}

// TestContextEndedBefore: an attempt whose context has ended is forgotten.
func TestContextEndedBefore(t *testing.T) {
	t.Parallel()
	b := newBackend(defaults(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 100 {
		a := b.register(backend.Request{Key: "key", Owner: fmt.Sprintf("%032x", i), TTL: time.Minute})
		if err := a.lock(ctx); err != nil {
			t.Fatalf("no other call works on it, and it cannot be forgotten: %v", err)
		}
		a.unlock()
	}
}

// TestRetireUnusedSession: a session ends although the caller that had it opened has no
// more time to use it, but not within the idle timeout.
func TestRetireUnusedSession(t *testing.T) {
	t.Parallel()
	b := newTestBackend(newFakeServer(t, 0))
	defer func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s, err := b.retainSession(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if b.retire(s) {
		t.Error("ended while it is in use")
	}
	s.release()
	if b.retire(s) {
		t.Error("ended at once")
	}
	s.mu.Lock()
	s.idleSince = s.idleSince.Add(-idleTimeout)
	s.mu.Unlock()
	if !b.retire(s) {
		t.Error("not ended after the idle timeout")
	}
	s.end(errIdleSession)
}
