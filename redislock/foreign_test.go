package redislock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// Tokens and scores in the queue rise although the clock is behind the last ones.
func TestClockBehind(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	k := b.svc.proc.Keys("k")
	future := time.Now().Add(10 * 365 * 24 * time.Hour).UnixMicro()
	must(t, b.svc.srv.Client.Set(t.Context(), k.Fence, future, 0).Err())
	g := take(t, b, request("k"))
	if g.Token() != uint64(future)+1 {
		t.Errorf("token %d after %d", g.Token(), future)
	}
	r := request("k")
	early := b.svc.member(r) // of an attempt that has ended
	must(t, b.svc.srv.Client.ZAdd(t.Context(), k.Queue, redis.Z{Score: float64(future), Member: early}).Err())
	ch := enqueue(t.Context(), t, b, request("k"))
	in, err := b.Inspect(t.Context(), "k")
	must(t, err)
	if len(in.Waiters) != 2 || in.Waiters[0].Owner != r.Owner {
		t.Errorf("waiters %+v", in.Waiters)
	}
	must(t, g.Release(t.Context()))
	g2 := get(t, ch) // past the one that has ended
	if g2.Token() <= g.Token() {
		t.Errorf("token %d after %d", g2.Token(), g.Token())
	}
	must(t, g2.Release(t.Context()))
}

// Keys of other types in the place of the queue and the counter do not keep a lock from being freed.
func TestForeignSiblings(t *testing.T) {
	p := newPrefix()
	b, c := newBackend(t, p), client(t, sharedServer(t))
	k := b.svc.proc.Keys("k")
	g := take(t, b, request("k"))
	must(t, c.Set(t.Context(), k.Queue, "x", 0).Err())
	must(t, g.Renew(t.Context(), time.Minute))
	_, err := b.Inspect(t.Context(), "k")
	must(t, err)
	must(t, b.Abandon(t.Context(), request("k")))
	must(t, g.Release(t.Context()))
	if n := c.Exists(t.Context(), k.Lock).Val(); n != 0 {
		t.Error("the lock was not freed")
	}
	g = take(t, b, request("k"))
	_, err = b.Break(t.Context(), "k", "")
	must(t, err)
	must(t, c.Del(t.Context(), k.Queue).Err())
	last := g.Token()
	for _, bad := range []string{"9007199254740993", "inf", "1e300", "-5", "x", "0x10", strings.Repeat("9", 400)} {
		must(t, c.Set(t.Context(), k.Fence, bad, 0).Err())
		r := request("k")
		g := take(t, b, r)
		if g.Token() <= last || g.Token() > uint64(time.Now().Add(time.Hour).UnixMicro()) {
			t.Errorf("beside a counter %q: token %d after %d", bad, g.Token(), last)
		}
		last = g.Token()
		must(t, c.Set(t.Context(), k.Fence, bad, 0).Err())
		if again := take(t, b, r); again.Token() < last {
			t.Errorf("asked again beside a counter %q: token %d after %d", bad, again.Token(), last)
		} else {
			last = again.Token()
		}
		must(t, g.Release(t.Context()))
	}
	must(t, c.Del(t.Context(), k.Fence).Err())
	must(t, c.LPush(t.Context(), k.Fence, "x").Err())
	g = take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
	// an empty foreign value is one, and a long one is not read
	for _, value := range []string{"", strings.Repeat("x", 1<<20)} {
		must(t, c.Set(t.Context(), k.Lock, value, time.Minute).Err())
		h, err := b.Break(t.Context(), "k", "")
		if err != nil || h == nil || !h.Foreign || len(h.Owner) > 400 {
			t.Errorf("beside %d bytes: %v", len(value), err)
		}
	}
}

func TestForeignHolder(t *testing.T) {
	p := newPrefix()
	b, c := newBackend(t, p), client(t, sharedServer(t))
	ok, err := c.SetNX(t.Context(), p+":k", "another client", 400*time.Millisecond).Result()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	_, err = b.TryAcquire(t.Context(), request("k"))
	var le *backend.LockedError
	if !errors.As(err, &le) || !le.Holder.Foreign || le.Holder.Owner != "another client" || le.Holder.Token != 0 {
		t.Fatalf("refusal: %v", err)
	}
	g, err := b.Acquire(t.Context(), request("k"))
	must(t, err)
	if ok, err := c.SetNX(t.Context(), p+":k", "x", time.Second).Result(); ok || err != nil && err != redis.Nil {
		t.Fatal("a foreign client took a held lock", err)
	}
	must(t, g.Release(t.Context()))
	// without expiry, freed early, and broken
	must(t, c.Set(t.Context(), p+":k", "for ever", 0).Err())
	ch := enqueue(t.Context(), t, b, request("k"))
	must(t, c.Del(t.Context(), p+":k").Err())
	must(t, get(t, ch).Release(t.Context()))
	must(t, c.Set(t.Context(), p+":k", "for ever", 0).Err())
	ch = enqueue(t.Context(), t, b, request("k"))
	h, err := b.Break(t.Context(), "k", "")
	if err != nil || h == nil || !h.Foreign || h.Left != 0 {
		t.Fatal(h, err)
	}
	must(t, get(t, ch).Release(t.Context()))
}

func TestWrongType(t *testing.T) {
	p := newPrefix()
	b, c := newBackend(t, p), client(t, sharedServer(t))
	must(t, c.LPush(t.Context(), p+":k", "a").Err())
	_, e1 := b.TryAcquire(t.Context(), request("k"))
	_, e2 := b.Acquire(t.Context(), request("k"))
	_, e3 := b.Inspect(t.Context(), "k")
	_, e4 := b.Break(t.Context(), "k", "")
	for _, err := range []error{e1, e2, e3, e4} {
		if !errors.Is(err, backend.ErrInvalid) || isUncertain(err) {
			t.Errorf("got %v", err)
		} else {
			t.Log(err)
		}
	}
	must(t, b.Abandon(t.Context(), request("k")))
	if c.LLen(t.Context(), p+":k").Val() != 1 {
		t.Error("the list was disturbed")
	}
	// while held and waited for
	must(t, c.Del(t.Context(), p+":k").Err())
	g := take(t, b, request("k"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := request("k")
	ch := enqueue(ctx, t, b, r)
	must(t, c.Del(t.Context(), p+":k").Err())
	must(t, c.LPush(t.Context(), p+":k", "a").Err())
	if err := g.Renew(t.Context(), time.Second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal: %v", err)
	}
	if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("release: %v", err)
	}
	b.svc.subs.pollNow(b.svc.proc.Channel())
	a := <-ch
	if !errors.Is(a.Err, backend.ErrInvalid) || !isUncertain(a.Err) {
		t.Errorf("wait: %v", a.Err)
	}
	must(t, b.Abandon(t.Context(), r))
	if n := c.ZCard(t.Context(), "{"+p+":k}:q").Val(); n != 0 {
		t.Errorf("%d in the queue", n)
	}
}
