package zklock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
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
				_, _, _ = ask(t.Context(), s, func(c *zk.Conn) (bool, error) {
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
		s.end(errSessionClosed)
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

// TestFirstCallerGivesUp: the session is still opened for the second caller.
func TestFirstCallerGivesUp(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, 0)
	f.silent.Store(true)
	s := newTestBackend(f).svc
	defer func() { _ = s.Close(context.Background()) }()
	ss, err := s.pin(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ss.awaitOpen(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the first caller: %v", err)
	}
	second := make(chan error, 1)
	go func() { second <- ss.awaitOpen(t.Context()) }()
	f.silent.Store(false)
	f.cut() // the client connects again
	if err := <-second; err != nil {
		t.Errorf("the second caller: %v", err)
	}
}

// TestSessions: the session of the first requests is handed over to the locks of its TTL, or closed, unless it was given
// to the caller.
func TestSessions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pin  time.Duration // zero: no session is given to the caller
		ttl  time.Duration
		open int
	}{
		"the same TTL":            {0, spareTTL, 1},
		"another TTL":             {0, time.Minute, 1},
		"given to the caller":     {spareTTL, time.Minute, 2},
		"one of that TTL is open": {time.Minute, time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestBackend(newFakeServer(t, 0)).svc
			s.limits = limits{time.Second, time.Hour}
			defer func() { _ = s.Close(context.Background()) }()
			if _, _, err := s.home(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.pin > 0 {
				if _, err := s.pin(c.pin); err != nil {
					t.Fatal(err)
				}
			}
			ss, err := s.Open(t.Context(), c.ttl)
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.sessions) != c.open || s.spare[c.ttl] == ss {
				t.Errorf("%d sessions, want %d", len(s.sessions), c.open)
			}
		})
	}
}
