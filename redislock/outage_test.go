package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/interlock-go/lock/backend"
)

func TestScriptFlush(t *testing.T) {
	addr := private(t)
	b := openURL(t, "redis://"+addr)
	for range 3 {
		must(t, b.svc.srv.Client.ScriptFlush(t.Context()).Err())
		g := take(t, b, request("k"))
		ch := enqueue(t.Context(), t, b, request("k"))
		must(t, b.svc.srv.Client.ScriptFlush(t.Context()).Err())
		must(t, g.Renew(t.Context(), time.Second))
		must(t, b.svc.srv.Client.ScriptFlush(t.Context()).Err())
		n := 0
		must(t, b.List(t.Context(), func(i backend.Info) bool { n++; return true }))
		if n != 1 {
			t.Errorf("listed %d", n)
		}
		must(t, b.svc.srv.Client.ScriptFlush(t.Context()).Err())
		must(t, g.Release(t.Context()))
		must(t, get(t, ch).Release(t.Context()))
	}
}

// A client of the driver and a client of the caller, with three retries, send no request
// twice, and return ErrUncertain for one without a reply.
func TestDroppedReplies(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	own := redis.NewClient(&redis.Options{Addr: px.Addr})
	defer own.Close()
	p := newPrefix()
	theirs, err := New(own, WithPrefix(p))
	must(t, err)
	defer closeBackend(t, theirs)
	direct := newBackend(t, p)
	for i, b := range []*Backend{openURL(t, "redis://"+px.Addr+"?prefix="+p), theirs} {
		key := "k" + strconv.Itoa(i)
		holder := func() *backend.Holder {
			in, err := direct.Inspect(t.Context(), key)
			must(t, err)
			return in.Holder
		}
		// acquire
		r := request(key)
		px.Next(acquireScript, drop)
		if _, err := b.TryAcquire(t.Context(), r); !isUncertain(err) {
			t.Fatalf("acquire: %v", err)
		}
		if h := holder(); h == nil || h.Owner != r.Owner {
			t.Fatalf("holder %+v", h)
		}
		px.Next(endScript, drop)
		if err := b.Abandon(t.Context(), r); !isUncertain(err) {
			t.Fatalf("abandon: %v", err)
		}
		must(t, b.Abandon(t.Context(), r))
		if h := holder(); h != nil {
			t.Fatalf("abandoned and held by %+v", h)
		}
		if _, err := b.TryAcquire(t.Context(), r); err == nil {
			t.Fatal("a late acquire was granted")
		}
		// renew
		g := take(t, b, request(key))
		px.Next(theScripts.renew, drop)
		if err := g.Renew(t.Context(), time.Minute); !isUncertain(err) {
			t.Fatalf("renew: %v", err)
		}
		must(t, g.Renew(t.Context(), time.Minute))
		// enqueue
		r = request(key)
		px.Next(acquireScript, drop)
		if _, err := b.Acquire(t.Context(), r); !isUncertain(err) {
			t.Fatalf("enqueue: %v", err)
		}
		must(t, b.Abandon(t.Context(), r))
		if n := direct.svc.srv.Client.ZCard(t.Context(), b.svc.proc.Keys(key).Queue).Val(); n != 0 {
			t.Fatalf("%d in the queue", n)
		}
		// release, after which a successor takes it
		px.Next(endScript, drop)
		if err := g.Release(t.Context()); !isUncertain(err) {
			t.Fatalf("release: %v", err)
		}
		g2 := take(t, direct, request(key))
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Fatalf("release again: %v", err)
		}
		must(t, g2.Renew(t.Context(), time.Minute))
		must(t, g2.Release(t.Context()))
		// a request that never arrived
		px.Next(acquireScript, never)
		if _, err := b.TryAcquire(t.Context(), request(key)); !isUncertain(err) {
			t.Fatalf("acquire: %v", err)
		}
	}
}

// A waiter tolerates an outage that a holder survives.
func TestServerRestart(t *testing.T) {
	port := freePort()
	addr, stop, err := start(port)
	if err != nil {
		missing(t, err)
	}
	defer func() { stop() }()
	b := openURL(t, "redis://"+addr)
	g := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	stop()
	_, err = b.TryAcquire(t.Context(), request("other"))
	if err == nil || (!isUncertain(err) && !strings.Contains(err.Error(), addr)) {
		t.Errorf("while it is down: %v", err)
	}
	eventually(t, "dial errors", func() bool {
		_, err := b.TryAcquire(t.Context(), request("other"))
		return err != nil && !isUncertain(err) && strings.Contains(err.Error(), addr)
	})
	_, err = b.Acquire(t.Context(), request("other"))
	if err == nil || isUncertain(err) {
		t.Errorf("not yet in the queue: %v", err)
	}
	_, stop, err = start(port)
	must(t, err)
	g2 := get(t, ch) // the restart forgot the lock
	if g2.Token() <= g.Token() {
		t.Errorf("token %d after %d", g2.Token(), g.Token())
	}
	if err := g.Renew(t.Context(), time.Second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal: %v", err)
	}
	must(t, g2.Release(t.Context()))

	// no longer than its TTL
	take(t, b, request("k"))
	r := request("k")
	r.TTL = 300 * time.Millisecond
	ch = enqueue(t.Context(), t, b, r)
	stop()
	start := time.Now()
	if a := <-ch; !isUncertain(a.Err) || time.Since(start) > 3*time.Second {
		t.Errorf("after %v: %v", time.Since(start), a.Err)
	}
}

// The waiters of several processes outlast a restart that loses everything. The first to ask gets the lock, and the others
// are in the queue again: each release wakes the next one, and none waits until it polls by itself.
func TestRestartWhileProcessesWait(t *testing.T) {
	port := freePort()
	addr, stop, err := start(port)
	if err != nil {
		missing(t, err)
	}
	defer func() { stop() }()
	holder := openURL(t, "redis://"+addr)
	others := []*Backend{openURL(t, "redis://"+addr), openURL(t, "redis://"+addr)}
	g := take(t, holder, request("k"))
	const waiters = 8
	ch, waits := make(chan acquired, waiters), make(chan bool)
	for i := range waiters {
		r := request("k")
		r.TTL = time.Minute
		r.OnWait = func(*backend.LockedError) { waits <- true }
		go func() {
			g, err := others[i%2].Acquire(context.Background(), r)
			ch <- acquired{Grant: g, Err: err}
		}()
		<-waits
	}
	stop()
	_, stop, err = start(port)
	must(t, err)
	last := g.Token()
	for range waiters {
		g := getWithin(t, 10*time.Second, ch) // the restart takes a part of the first
		if g.Token() <= last {
			t.Errorf("token %d after %d", g.Token(), last)
		}
		last = g.Token()
		must(t, g.Renew(t.Context(), time.Minute))
		must(t, g.Release(t.Context()))
	}
	if err := g.Renew(t.Context(), time.Second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("the holder from before: %v", err)
	}
	must(t, take(t, holder, request("k")).Release(t.Context()))
}

// A request to a server that hangs ends with its context.
func TestHungServer(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	b := openURL(t, "redis://"+px.Addr+"?prefix="+newPrefix())
	g := take(t, b, request("k"))
	release := make(chan bool)
	px.Set(func([]byte) action { <-release; return pass })
	defer close(release)
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := b.TryAcquire(ctx, request("k")); return err },
		func(ctx context.Context) error { _, err := b.Acquire(ctx, request("k")); return err },
		func(ctx context.Context) error { return g.Renew(ctx, time.Second) },
		func(ctx context.Context) error { return g.Release(ctx) },
		func(ctx context.Context) error { return b.Abandon(ctx, request("k")) },
		func(ctx context.Context) error { _, err := b.Inspect(ctx, "k"); return err },
		func(ctx context.Context) error { return b.List(ctx, func(backend.Info) bool { return true }) },
		b.Ping,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		start := time.Now()
		err := f(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	}
}

func TestClose(t *testing.T) {
	p := newPrefix()
	c := client(t, sharedServer(t))
	b, err := New(c, WithPrefix(p))
	must(t, err)
	g := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	closeBackend(t, b)
	if a := <-ch; !errors.Is(a.Err, backend.ErrClosed) {
		t.Errorf("waiting: %v", a.Err)
	}
	if err := g.Release(t.Context()); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("release: %v", err)
	}
	closeBackend(t, b)
	must(t, c.Ping(t.Context()).Err()) // still the caller's
	eventually(t, "the subscription is gone", func() bool {
		return c.PubSubNumSub(t.Context(), b.svc.proc.Channel()).Val()[b.svc.proc.Channel()] == 0
	})
}

// Close while requests of all kinds are sent to a server that does not answer leaves no goroutine, once the read timeout of
// the client has passed.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	const serve = "github.com/interlock-go/lock/redislock/internal/redistest.(*Proxy).serve"
	others := []goleak.Option{goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction(serve), goleak.IgnoreAnyFunction(serve + ".func1")}
	own := redis.NewClient(&redis.Options{Addr: px.Addr, ReadTimeout: 500 * time.Millisecond})
	defer own.Close()
	for _, open := range []func() (backend.Backend, error){
		func() (backend.Backend, error) { return New(own, WithPrefix(newPrefix())) },
		func() (backend.Backend, error) {
			u, err := backend.ParseURL("redis://" + px.Addr + "?read_timeout=500ms&prefix=" + newPrefix())
			must(t, err)
			return backend.Open(t.Context(), u)
		},
	} {
		opened, err := open()
		must(t, err)
		b := opened.(*Backend)
		held := takeMany(t, b, 6)
		waiting := enqueue(t.Context(), t, b, request("k0"))
		var sent atomic.Int64
		silent := make(chan bool)
		px.Set(func([]byte) action { sent.Add(1); <-silent; return never })
		end := sync.OnceFunc(func() { px.Set(nil); close(silent) })
		t.Cleanup(end)
		ctx := context.Background()
		requests := []func() error{
			func() error { _, err := b.TryAcquire(ctx, request("x")); return err },
			func() error { _, err := b.Acquire(ctx, request("y")); return err },
			func() error { return held[1].Renew(ctx, time.Minute) },
			func() error { return errors.Join(b.RenewBatch(ctx, batchOf(time.Minute, held[2], held[3]))...) },
			func() error { return held[4].Release(ctx) },
			func() error { return held[5].(backend.Downgrader).Downgrade(ctx) },
			func() error {
				return errors.Join(b.AbandonBatch(ctx, []backend.Request{request("x"), request("y")})...)
			},
			func() error { _, err := b.Break(ctx, "k0", ""); return err },
			func() error { _, err := b.Inspect(ctx, "k0"); return err },
			func() error { return b.List(ctx, func(backend.Info) bool { return true }) },
			func() error { return b.Ping(ctx) },
		}
		ended := make(chan error, len(requests))
		for _, f := range requests {
			go func() { ended <- f() }()
		}
		b.svc.subs.pollNow(b.svc.proc.Channel())
		eventually(t, "all requests are sent", func() bool { return sent.Load() >= int64(len(requests)) })
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if err := b.Close(short); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		cancel()
		for range requests {
			if err := <-ended; err == nil {
				t.Error("a request without a reply: want an error")
			}
		}
		if a := <-waiting; !errors.Is(a.Err, backend.ErrClosed) {
			t.Errorf("a waiter: %v", a.Err)
		}
		var left error
		for end := time.Now().Add(3 * time.Second); ; {
			if left = goleak.Find(others...); left == nil || time.Now().After(end) {
				break
			}
		}
		if left != nil {
			t.Error(left)
		}
		end()
	}
}
