package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// A request whose context ends while it waits for a connection of the pool was not sent.
func TestWaitForConnectionIsNotSent(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	p := newPrefix()
	own := redis.NewClient(&redis.Options{Addr: px.Addr, PoolSize: 1}) // does not end a request with its context
	defer own.Close()
	theirs, err := New(own, WithPrefix(p))
	must(t, err)
	defer closeBackend(t, theirs)
	for _, b := range []*Backend{openURL(t, "redis://"+px.Addr+"?pool_size=1&prefix="+p), theirs} {
		blocked, release := make(chan bool), make(chan bool)
		px.Set(onScript(acquireScript, func() action { px.Set(nil); close(blocked); <-release; return pass }))
		first := make(chan error, 1)
		go func() {
			g, err := b.TryAcquire(context.Background(), request("first"))
			if err == nil {
				err = g.Release(context.Background())
			}
			first <- err
		}()
		<-blocked
		for _, f := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := b.TryAcquire(ctx, request("k")); return err },
			func(ctx context.Context) error { _, err := b.Acquire(ctx, request("k")); return err },
			func(ctx context.Context) error { return b.Abandon(ctx, request("k")) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := f(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || backend.OutcomeUnknown(err) {
				t.Errorf("got %v; want the end of the context, and nothing executed", err)
			}
		}
		close(release)
		must(t, <-first)
		// the next request waits until those before have left the pool
		if in, err := b.Inspect(t.Context(), "k"); err != nil || in.Holder != nil || len(in.Waiters) > 0 {
			t.Errorf("a request was sent: %+v, %v", in, err)
		}
	}
}

func wantText(t *testing.T, err error, want string, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %s", want)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: matches context.DeadlineExceeded although no deadline of the caller has passed", err)
	}
	s := err.Error()
	for _, p := range append(parts, want) {
		if strings.Count(s, p) != 1 {
			t.Errorf("got %q; want %q once", s, p)
		}
	}
	if strings.Contains(s, "\n") {
		t.Errorf("%q has more than one line", s)
	}
}

// A server that has too many clients says so and closes the connection. If the first
// request arrives before it closes, the words may be lost.
func TestMaxClients(t *testing.T) {
	const words, closed = "ERR max number of clients reached", "closed a new connection without an answer (too many clients"
	addr := private(t, "--maxclients", "4")
	b := openURL(t, "redis://"+addr+"?pool_size=8")
	g := take(t, b, request("k")) // two connections with the subscription
	for range 4 {
		c, err := net.Dial("tcp", addr)
		must(t, err)
		defer c.Close()
	}
	busy := b.svc.srv.Client.(*redis.Client).Conn() // the next request needs another connection
	must(t, busy.Ping(t.Context()).Err())
	for _, f := range []func() error{
		func() error { return openError(t, "redis://"+addr) },
		func() error { return openError(t, "redis://:secret@"+addr+"/3") },
		func() error { _, err := b.TryAcquire(t.Context(), request("other")); return err },
	} {
		err := f()
		if err != nil && strings.Contains(err.Error(), closed) {
			wantText(t, err, closed)
		} else {
			wantText(t, err, words, addr)
		}
		if isUncertain(err) {
			t.Errorf("%v: the request was not sent", err)
		}
	}
	must(t, busy.Close())
	must(t, g.Release(t.Context()))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Write([]byte("-" + words + "\r\n"))
			_, _ = c.Read(make([]byte, 1000)) // not closed before the request
			_ = c.Close()
		}
	}()
	wantText(t, openError(t, "redis://"+l.Addr().String()), words, l.Addr().String())
	wantText(t, openError(t, "redis://:secret@"+l.Addr().String()+"/3"), words, l.Addr().String())
}

func TestTLSToPlainPort(t *testing.T) {
	addr := sharedServer(t)
	start := time.Now()
	err := openError(t, "rediss://"+addr+"?dial_timeout=200ms")
	wantText(t, err, "TLS handshake", addr, "no answer within 200ms: does this port use TLS?")
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("after %v", d)
	}
}

// The limits of the driver are no deadline of the caller.
func TestOwnLimitsAreNoDeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	must(t, err)
	defer l.Close()
	addr := l.Addr().String()
	for _, scheme := range []string{"redis://%s/?", "redis+cluster://%s/?", "redis+sentinel://%s/m?"} {
		wantText(t, openError(t, fmt.Sprintf(scheme+"read_timeout=100ms&dial_timeout=100ms", addr)), "i/o timeout", addr)
	}
	_, err = net.DialTimeout("tcp", addr, 1)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v: net has changed, and the driver need not hide its timeouts", err)
	}
	wantText(t, server.Failure(err), "i/o timeout")
}

// A waiter whose server is gone says once that the outcome is not known, and why.
func TestOutcomeUnknownOnce(t *testing.T) {
	addr, stop, err := start(freePort())
	if err != nil {
		missing(t, err)
	}
	defer stop()
	b := openURL(t, "redis://"+addr)
	take(t, b, request("k"))
	r := request("k")
	r.TTL = 300 * time.Millisecond
	ch := enqueue(t.Context(), t, b, r)
	stop()
	a := <-ch
	wantText(t, a.Err, "outcome unknown", addr)

	px := newProxy(t, sharedServer(t))
	b = openURL(t, "redis://"+px.Addr+"?prefix="+newPrefix())
	take(t, b, request("k"))
	ch = enqueue(t.Context(), t, b, r)
	px.Set(func([]byte) action { return never })
	px.Cut()
	a = <-ch
	wantText(t, a.Err, "outcome unknown")
}
