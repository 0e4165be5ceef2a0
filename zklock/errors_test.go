package zklock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// oneLine checks an error that no deadline of the caller has caused.
func oneLine(t *testing.T, what string, err error, once ...string) {
	t.Helper()
	if err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v; matches the deadline of a context: %v", what, err, errors.Is(err, context.DeadlineExceeded))
		return
	}
	for _, s := range once {
		if strings.Count(err.Error(), s) != 1 {
			t.Errorf("%s: want %q once, got %v", what, s, err)
		}
	}
}

func TestErrorsOfServers(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	for what, c := range map[string]struct {
		url  string
		once []string
	}{
		"no servers":          {"zk://127.0.0.1:1,127.0.0.1:2", []string{"127.0.0.1:1:", "127.0.0.1:2:", "zookeeper:"}},
		"a silent server":     {"zk://" + addr + "?dial_timeout=100ms", []string{addr, "no answer in time"}},
		"a limit for opening": {"zk://" + addr + "?open_timeout=100ms", []string{addr, "no answer in time"}},
	} {
		u, err := backend.ParseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), u)
		oneLine(t, what, err, c.once...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	u, err := backend.ParseURL("zk://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, u); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline of the caller: %v", err)
	}
}

// TestErrorsOfAttempts cuts the connection of an attempt, and loses all replies.
func TestErrorsOfAttempts(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"try", "wait"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFakeServer(t, 0)
			b := newTestBackend(f)
			b.svc.opt.openTimeout = 500 * time.Millisecond
			defer b.Close(t.Context())
			const ttl = 2 * time.Second
			ss, err := b.svc.pin(ttl)
			if err == nil {
				err = ss.awaitOpen(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			f.silent.Store(true)
			f.cut()
			acquire := b.TryAcquire
			if how == "wait" {
				acquire = b.Acquire
			}
			_, err = acquire(t.Context(), backend.Request{Key: "key", Owner: strings.Repeat("0a", 16), TTL: ttl})
			oneLine(t, how, err, "zookeeper:")
		})
	}
}
