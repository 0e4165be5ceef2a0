package redislock

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// replicated starts a master and a replica that has its data.
func replicated(t testing.TB) (master, replica string) {
	t.Helper()
	master = private(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master, ":")
	replica = private(t, "--replicaof", host+" "+port)
	m, r := client(t, master), client(t, replica)
	eventually(t, "the replica has its copy", func() bool {
		return strings.Contains(r.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	eventually(t, "the replica acknowledges", func() bool {
		must(t, m.Set(context.Background(), "x", "x", 0).Err()) // WAIT is about what its connection wrote
		return m.Wait(context.Background(), 1, time.Second).Val() == 1
	})
	return master, replica
}

// detach ends the replication, and returns when the master has noticed.
func detach(t *testing.T, master, replica string) {
	t.Helper()
	must(t, client(t, replica).ReplicaOf(t.Context(), "no", "one").Err())
	eventually(t, "the master has no replica", func() bool {
		return strings.Contains(client(t, master).Info(t.Context(), "replication").Val(), "connected_slaves:0")
	})
}

// A grant, a renewal and a hand-off are on the replica when they are reported.
func TestWaitReplicas(t *testing.T) {
	master, replica := replicated(t)
	c, m := client(t, replica), client(t, master)
	b := openURL(t, "redis://"+master+"?wait_replicas=1&wait_timeout=2s")
	must(t, b.svc.srv.Client.ScriptFlush(t.Context()).Err())
	r := request("k")
	g := take(t, b, r)
	if v := c.Get(t.Context(), "lock:k").Val(); !strings.HasPrefix(v, r.Owner) {
		t.Errorf("the replica has %q when it was granted", v)
	}
	must(t, g.Renew(t.Context(), time.Minute))
	if left := c.PTTL(t.Context(), "lock:k").Val(); left < 50*time.Second {
		t.Errorf("the replica keeps it for %v when it was renewed", left)
	}
	before := calls(t, m, "pexpire")
	must(t, g.Renew(t.Context(), time.Second)) // which extends nothing
	if calls(t, m, "pexpire") == before {
		t.Error("a renewal wrote nothing that WAIT could wait for")
	}
	r = request("k")
	ch := enqueue(t.Context(), t, b, r)
	must(t, g.Release(t.Context()))
	g = get(t, ch)
	if v := c.Get(t.Context(), "lock:k").Val(); !strings.HasPrefix(v, r.Owner) {
		t.Errorf("the replica has %q when it was handed over", v)
	}
	if left := time.Until(g.Until()); left < 5*time.Second {
		t.Errorf("what was pushed was not renewed before it was reported: %v", left)
	}
	must(t, g.Release(t.Context()))
}

// With too few replicas an acquire, a hand-off and a renewal fail, and the error has their
// number.
func TestWaitShortfall(t *testing.T) {
	t.Parallel()
	master, replica := replicated(t)
	url := "redis://" + master + "?wait_timeout=500ms&wait_replicas="
	b, b2 := openURL(t, url+"1"), openURL(t, url+"2")
	c := client(t, master)
	short := func(what string, err error, uncertain bool, count string) {
		t.Helper()
		if err == nil || isUncertain(err) != uncertain || !strings.Contains(err.Error(), count) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := b2.TryAcquire(t.Context(), request("k"))
	short("two asked for", err, false, "1 of 2")
	_, err = b2.Acquire(t.Context(), request("k"))
	short("two asked and waited for", err, false, "1 of 2")
	if c.Exists(t.Context(), "lock:k").Val() != 0 {
		t.Error("it was not released")
	}

	g := take(t, b, request("k"))
	until := g.Until()
	detach(t, master, replica)
	short("renewal", g.Renew(t.Context(), time.Minute), true, "0 of 1")
	if g.Until() != until {
		t.Error("a renewal without replicas moved Until")
	}
	ch, behind := enqueue(t.Context(), t, b, request("k")), enqueue(t.Context(), t, openURL(t, url+"0"), request("k"))
	must(t, g.Release(t.Context()))
	a := <-ch
	short("hand-off", a.Err, false, "0 of 1")
	must(t, get(t, behind).Release(t.Context())) // it went on to the next
	_, err = b.TryAcquire(t.Context(), request("k"))
	short("acquire", err, false, "0 of 1")
	if c.Exists(t.Context(), "lock:k").Val() != 0 {
		t.Error("it was not released")
	}
}

// A script and its WAIT are one round trip.
func TestWaitIsOneRoundTrip(t *testing.T) {
	master, _ := replicated(t)
	px := newProxy(t, master)
	b, direct := openURL(t, "redis://"+px.Addr+"?wait_replicas=1&wait_timeout=2s"), openURL(t, "redis://"+master)
	c := client(t, master)
	must(t, take(t, b, request("k")).Release(t.Context())) // connect
	var sent, together atomic.Int32
	px.Set(func(p []byte) action {
		sent.Add(1)
		if bytes.Contains(p, []byte("evalsha")) && bytes.Contains(p, []byte("\r\nwait\r\n")) {
			together.Add(1)
		}
		return pass
	})
	want := func(what string, pieces, waits int32) {
		t.Helper()
		if s, w := sent.Swap(0), together.Swap(0); s != pieces || w != waits {
			t.Errorf("%s: sent %d times, %d of them with WAIT; want %d and %d", what, s, w, pieces, waits)
		}
	}
	scripts, waits := calls(t, c, "evalsha", "eval"), calls(t, c, "wait")
	g := take(t, b, request("k"))
	want("acquire", 1, 1)
	must(t, g.Renew(t.Context(), time.Minute))
	want("renewal", 1, 1)
	must(t, g.Release(t.Context()))
	want("release", 1, 0)
	if s, w := calls(t, c, "evalsha", "eval")-scripts, calls(t, c, "wait")-waits; s != 3 || w != 2 {
		t.Errorf("%d scripts and %d WAITs at the server", s, w)
	}
	g = take(t, direct, request("k"))
	ch := make(chan acquired, 1)
	waiting := make(chan bool)
	r := request("k")
	r.OnWait = func(*backend.LockedError) { close(waiting) }
	go func() {
		g, err := b.Acquire(context.Background(), r)
		ch <- acquired{Grant: g, Err: err}
	}()
	<-waiting
	want("queue", 1, 1)
	must(t, g.Release(t.Context()))
	g = get(t, ch)
	want("hand-off", 1, 1)
	must(t, g.Release(t.Context()))
}

// BenchmarkWait compares a cycle with and without one replica's acknowledgement.
func BenchmarkWait(b *testing.B) {
	master, _ := replicated(b)
	for _, n := range []string{"0", "1"} {
		b.Run("replicas="+n, func(b *testing.B) {
			k := openURL(b, "redis://"+master+"?wait_replicas="+n)
			for b.Loop() {
				g, err := k.TryAcquire(context.Background(), request("k"))
				must(b, err)
				must(b, g.Release(context.Background()))
			}
		})
	}
}
