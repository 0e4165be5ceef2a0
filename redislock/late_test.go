package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// A request to acquire is delayed, cancelled, abandoned, and then delivered.
func TestLateRequest(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	p := newPrefix()
	b, direct := openURL(t, "redis://"+px.Addr+"?prefix="+p), newBackend(t, p)
	for _, wait := range []bool{false, true} {
		arrived, deliver := make(chan bool), make(chan bool)
		px.Set(onScript(acquireScript, func() action { px.Set(nil); close(arrived); <-deliver; return pass }))
		ctx, cancel := context.WithCancel(t.Context())
		r := request("k")
		done := make(chan error)
		go func() {
			var err error
			if wait {
				_, err = b.Acquire(ctx, r)
			} else {
				_, err = b.TryAcquire(ctx, r)
			}
			done <- err
		}()
		<-arrived
		start := time.Now()
		cancel()
		if err := <-done; !isUncertain(err) || !errors.Is(err, context.Canceled) || time.Since(start) > time.Second {
			t.Fatalf("after %v: %v", time.Since(start), err)
		}
		must(t, b.Abandon(t.Context(), r))
		before := calls(t, client(t, sharedServer(t)), "evalsha")
		close(deliver)
		eventually(t, "it was executed", func() bool { return calls(t, client(t, sharedServer(t)), "evalsha") > before })
		in, err := direct.Inspect(t.Context(), "k")
		must(t, err)
		if in.Holder != nil || len(in.Waiters) != 0 {
			t.Fatalf("left behind: %+v", in)
		}
	}
}

// A late request never shortens the lease of a later one.
func TestLateRequestsDoNotShorten(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	p := newPrefix()
	b, direct := openURL(t, "redis://"+px.Addr+"?prefix="+p), newBackend(t, p)
	c := client(t, sharedServer(t))
	for name, s := range map[string]*protocol.Script{"renewal": theScripts.renew, "poll": acquireScript} {
		g0 := take(t, direct, request("k"))
		r := request("k")
		r.TTL = time.Second
		ch := enqueue(t.Context(), t, b, r)
		arrived, deliver := make(chan bool), make(chan bool)
		px.Set(onScript(s, func() action { px.Set(nil); close(arrived); <-deliver; return pass }))
		var g backend.Grant
		if s == acquireScript {
			b.svc.subs.pollNow(b.svc.proc.Channel())
			<-arrived
			must(t, g0.Release(t.Context()))
			g = get(t, ch)
		} else {
			must(t, g0.Release(t.Context()))
			g = get(t, ch)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if err := g.Renew(ctx, time.Second); !isUncertain(err) {
				t.Errorf("held up: %v", err)
			}
			cancel()
			<-arrived
		}
		must(t, g.Renew(t.Context(), time.Hour))
		before := calls(t, c, "evalsha")
		close(deliver)
		eventually(t, "it was executed", func() bool { return calls(t, c, "evalsha") > before })
		if left := c.PTTL(t.Context(), p+":k").Val(); left < 30*time.Minute {
			t.Errorf("a late %s left %v of an hour", name, left)
		}
		must(t, g.Renew(t.Context(), time.Second)) // not shortened, and Until is moved
		if left := time.Until(g.Until()); left > time.Second {
			t.Errorf("until in %v", left)
		}
		must(t, c.Persist(t.Context(), p+":k").Err())
		must(t, g.Renew(t.Context(), time.Second))
		if left := c.PTTL(t.Context(), p+":k").Val(); left <= 0 {
			t.Error("the renewal of one without an expiry set none")
		}
		must(t, g.Release(t.Context()))
	}
}
