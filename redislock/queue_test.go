package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

func TestFIFO(t *testing.T) {
	p := newPrefix()
	bs := []*Backend{newBackend(t, p), newBackend(t, p), newBackend(t, p)}
	g := take(t, bs[0], request("k"))
	var chans []<-chan acquired
	var owners []string
	for i := range 9 {
		r := request("k")
		owners = append(owners, r.Owner)
		chans = append(chans, queue(t, t.Context(), bs[i%3], r))
	}
	in, err := bs[0].Inspect(t.Context(), "k")
	must(t, err)
	for i, w := range in.Waiters {
		if w.Owner != owners[i] || w.Metadata != "test k" {
			t.Errorf("waiter %d is %+v", i, w)
		}
	}
	// who does not wait must not overtake, even when the key is free by expiry
	must(t, bs[0].rdb.Del(t.Context(), p+":k").Err())
	if _, err := bs[1].TryAcquire(t.Context(), request("k")); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("overtaken: %v", err)
	}
	last := g.Token()
	for i, ch := range chans {
		g := get(t, ch)
		if g.Token() <= last {
			t.Errorf("token %d after %d", g.Token(), last)
		}
		last = g.Token()
		in, err := bs[0].Inspect(t.Context(), "k")
		must(t, err)
		if in.Holder == nil || in.Holder.Owner != owners[i] || in.Holder.Token != last || len(in.Waiters) != len(chans)-i-1 {
			t.Errorf("turn %d: %+v", i, in)
		}
		must(t, g.Release(t.Context()))
	}
}

// A waiter whose process is gone is skipped at once, however many there are.
func TestDeadWaitersAreSkipped(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	k := b.keys("k")
	g := take(t, b, request("k"))
	for i := range 5 {
		dead := &Backend{address: fmt.Sprintf("p%016x", i+1)}
		must(t, b.rdb.ZAdd(t.Context(), k.queue, redis.Z{Score: float64(i), Member: dead.member(request("k"))}).Err())
	}
	must(t, b.rdb.ZAdd(t.Context(), k.queue, redis.Z{Score: 9, Member: "not of ours"}).Err())
	ch := queue(t, t.Context(), b2, request("k"))
	start := time.Now()
	must(t, g.Release(t.Context()))
	g2 := get(t, ch)
	if d := time.Since(start); d > time.Second {
		t.Errorf("after %v", d)
	}
	must(t, g2.Release(t.Context()))
	// only dead ones: the key is free
	must(t, b.rdb.ZAdd(t.Context(), k.queue, redis.Z{Score: 1, Member: (&Backend{address: "p0000000000000001"}).member(request("k"))}).Err())
	must(t, take(t, b, request("k")).Release(t.Context()))
	if n := b.rdb.Exists(t.Context(), k.lock, k.queue).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// A waiter whose channel somebody still reads, though it is dead, delays the next
// by no more than its claim.
func TestZombieWaiter(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	g := take(t, b, request("k"))
	zombie := &Backend{address: "p00000000000000aa", opt: b.opt}
	ps := b.rdb.Subscribe(t.Context(), zombie.processChannel())
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	must(t, err)
	r := request("k")
	r.TTL = 200 * time.Millisecond
	must(t, b.rdb.ZAdd(t.Context(), b.keys("k").queue, redis.Z{Score: 1, Member: zombie.member(r)}).Err())
	ch := queue(t, t.Context(), b, request("k"))
	start := time.Now()
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
	if d := time.Since(start); d < r.TTL || d >= claim { // which the zombie's TTL shortens
		t.Errorf("after %v", d)
	}
}

// A grant pushed to an attempt that nobody waits for goes back.
func TestReturnToSender(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	g := take(t, b, request("k"))
	must(t, b.rdb.ZAdd(t.Context(), b.keys("k").queue, redis.Z{Score: 1, Member: b.member(request("k"))}).Err())
	start := time.Now()
	must(t, g.Release(t.Context()))
	eventually(t, "it is returned", func() bool {
		in, err := b.Inspect(t.Context(), "k")
		must(t, err)
		return in.Holder == nil
	})
	if d := time.Since(start); d > claim-500*time.Millisecond {
		t.Errorf("after %v it may have expired", d)
	}
	for _, bad := range []string{"", "g", "g x", "g x 1 2", "h", "h x y z", "l x", "?"} {
		b.receive(nil, bad)
	}
}

// A push that arrives after a poll found the grant leaves it alone.
func TestPushAfterPoll(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	r := request("k")
	ag, err := b.Acquire(t.Context(), r)
	must(t, err)
	b.receive(nil, fmt.Sprintf("g %s %d %d 3000 %s", r.Owner, ag.Token(), time.Now().Add(claim).UnixMicro(), b.keys("k").lock))
	for range 20 { // a return would be on its way
		must(t, ag.Renew(t.Context(), time.Second))
	}
	must(t, ag.Renew(t.Context(), time.Second))
	must(t, ag.Release(t.Context()))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.attempts) != 0 {
		t.Errorf("%d attempts remembered", len(b.attempts))
	}
}

// So does one that arrives while the grant is being released, which would be told that
// the key had been lost.
func TestPushBesideTheRelease(t *testing.T) {
	b := newBackend(t, newPrefix())
	r := request("k")
	g, err := b.Acquire(t.Context(), r)
	must(t, err)
	var sent atomic.Bool
	b.rdb.AddHook(beforeEach(func(cmd redis.Cmder) {
		if args := cmd.Args(); len(args) < 2 || args[1] != releaseScript.sha || sent.Swap(true) {
			return
		}
		b.receive(nil, fmt.Sprintf("g %s %d %d 3000 %s", r.Owner, g.Token(), time.Now().Add(claim).UnixMicro(), b.keys("k").lock))
		for range 200 { // a return would be on its way
			must(t, b.rdb.Ping(context.Background()).Err())
		}
	}))
	if err := g.Release(t.Context()); err != nil {
		t.Errorf("release of a grant that was held: %v", err)
	}
}

// beforeEach is a hook that sees each command before it is sent.
type beforeEach func(redis.Cmder)

func (f beforeEach) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f beforeEach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f(cmd)
		return next(ctx, cmd)
	}
}

func (f beforeEach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A release that races with the enqueuing of a waiter never leaves it asleep.
func TestNoLostWakeUp(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	for i := range 200 {
		r := request("k")
		r.TTL = time.Hour // nobody is woken by its end
		g := take(t, b, r)
		ch := make(chan acquired, 1)
		go func() {
			g, err := b2.Acquire(context.Background(), request("k"))
			ch <- acquired{g, err}
		}()
		for end := time.Now().Add(time.Duration(i) * 2 * time.Microsecond); time.Now().Before(end); {
			continue // the delays are too short for a timer
		}
		must(t, g.Release(t.Context()))
		must(t, get(t, ch).Release(t.Context()))
	}
}

// The first in the queue learns of a lease that became shorter or longer: it asks
// at the end of the true one, though it asked when the lease was an hour long.
func TestHeadFollowsTheLease(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	long := request("k")
	long.TTL = time.Hour
	g := take(t, b, long)
	short := request("k")
	short.TTL = 300 * time.Millisecond
	c1 := queue(t, t.Context(), b, short)
	c2 := queue(t, t.Context(), b2, request("k"))
	must(t, g.Release(t.Context()))
	get(t, c1) // and never releases
	start := time.Now()
	must(t, get(t, c2).Release(t.Context()))
	if d := time.Since(start); d >= claim { // which the TTL shortens
		t.Errorf("waited %v for a lease of 300ms", d)
	}
}

// Each renewal tells the first waiter that listens, past those that are gone.
func TestRenewTellsTheFirst(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	k := b.keys("k")
	g := take(t, b, request("k"))
	dead, alive := &Backend{address: "p0000000000000001", opt: b.opt}, &Backend{address: "p0000000000000002", opt: b.opt}
	ps := b.rdb.Subscribe(t.Context(), alive.processChannel())
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := request("k")
	must(t, b.rdb.ZAdd(t.Context(), k.queue, redis.Z{Score: 1, Member: dead.member(request("k"))}, redis.Z{Score: 2, Member: alive.member(r)}).Err())
	must(t, g.Renew(t.Context(), 20*time.Second))
	m, err := ps.ReceiveMessage(ctx)
	must(t, err)
	if want := fmt.Sprintf("h %s %d", r.Owner, 20000); m.Payload != want {
		t.Errorf("told %q, want %q", m.Payload, want)
	}
	must(t, g.Renew(t.Context(), time.Second)) // what is kept, not what was asked for
	m, err = ps.ReceiveMessage(ctx)
	must(t, err)
	if left := number(m.Payload[len("h ")+32+1:]); left < 10000 {
		t.Errorf("told %q", m.Payload)
	}
	if n := b.rdb.ZCard(t.Context(), k.queue).Val(); n != 1 {
		t.Errorf("%d in the queue", n)
	}
	must(t, b.rdb.Del(t.Context(), k.queue).Err())
	must(t, g.Release(t.Context()))
}
