package redislock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

func reader() backend.Request { return shareRequest("k", backend.Reader) }

// A share does not wait for a writer of a process that was killed, which is not subscribed.
func TestKilledWriterBeforeReaders(t *testing.T) {
	b := newBackend(t, newPrefix())
	g := take(t, b, reader())
	dead := protocol.Process{Address: "p0000000000000001"}
	must(t, b.srv.Client.ZAdd(t.Context(), b.proc.Keys("k").Queue, redis.Z{Score: 1, Member: dead.Member(request("k"))}).Err())
	must(t, take(t, newBackend(t, b.opt.prefix), reader()).Release(t.Context()))
	must(t, g.Release(t.Context()))
}

// The process of a writer was stopped: it is subscribed and does not answer. It keeps its place for one provisional TTL
// after a share has asked. The share that asked leaves, and another one of its process looks for the answer.
func TestStoppedWriterBeforeReaders(t *testing.T) {
	t.Parallel() // mostly it waits
	b := newBackend(t, newPrefix())
	g := take(t, b, reader())
	stopped(t, b, "k", 0, 3, time.Minute)
	asks := newBackend(t, b.opt.prefix)
	ctx, cancel := context.WithCancel(t.Context())
	start, first := time.Now(), reader()
	gone := queue(ctx, t, asks, first)
	ch := queue(t.Context(), t, asks, reader())
	cancel()
	<-gone
	must(t, asks.Abandon(t.Context(), first))
	must(t, getWithin(t, 2*protocol.ProvisionalTTL, ch).Release(t.Context()))
	if d := time.Since(start); d < protocol.ProvisionalTTL {
		t.Errorf("the writer lost its place %v after it was asked", d)
	}
	must(t, g.Release(t.Context()))
	if n := b.srv.Client.Exists(t.Context(), b.proc.Keys("k").Queue).Val(); n != 0 {
		t.Error("the queue remains")
	}
}

// A writer that is alive answers and keeps its place. Of the shares of a process one asks, so the requests do not grow
// with their number.
func TestLiveWriterBeforeReaders(t *testing.T) {
	t.Parallel() // mostly it waits
	addr := private(t)
	b, c := openURL(t, "redis://"+addr), client(t, addr)
	g := take(t, b, reader())
	first := request("k")
	writer := queue(t.Context(), t, openURL(t, "redis://"+addr), first)
	old := float64(-time.Now().Add(-time.Minute).UnixMilli()) // a share asked a minute ago and left
	must(t, c.ZAdd(t.Context(), b.proc.Keys("k").Queue, redis.Z{Score: old, Member: "?" + first.Owner}).Err())
	asks := openURL(t, "redis://"+addr)
	var readers []<-chan acquired
	for range 20 {
		readers = append(readers, queue(t.Context(), t, asks, reader()))
	}
	before, end := calls(t, c, "evalsha", "eval"), time.Now().Add(3*protocol.ProvisionalTTL)
	for _, ch := range append(readers, writer) {
		select {
		case r := <-ch:
			t.Fatalf("beside a reader: granted %v, %v", r.Grant, r.Err)
		case <-time.After(time.Until(end)):
		}
	}
	if n := calls(t, c, "evalsha", "eval") - before; n < 4 || n > 8 {
		t.Errorf("%d scripts in three provisional TTLs, want a question and an answer in each", n)
	}
	must(t, g.Release(t.Context()))
	must(t, get(t, writer).Release(t.Context()))
	for _, ch := range readers {
		must(t, get(t, ch).Release(t.Context()))
	}
}

// The first waiter has ended and its place remains: its process, which is alive, removes that when it is asked.
func TestEndedWriterBeforeReaders(t *testing.T) {
	b := newBackend(t, newPrefix())
	other := take(t, b, request("other"))
	queue(t.Context(), t, b, request("other")) // so that b is subscribed
	g := take(t, b, reader())
	ended := b.proc.Member(request("k"))
	must(t, b.srv.Client.ZAdd(t.Context(), b.proc.Keys("k").Queue, redis.Z{Score: 1, Member: ended}).Err())
	ctx, cancel := context.WithTimeout(t.Context(), protocol.ProvisionalTTL/2)
	defer cancel()
	next, err := newBackend(t, b.opt.prefix).Acquire(ctx, reader())
	must(t, err)
	for _, g := range []backend.Grant{next, g, other} {
		must(t, g.Release(t.Context()))
	}
}
