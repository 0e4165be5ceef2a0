package redislock

import (
	"context"
	"encoding"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Waiters whose process is not subscribed are skipped at once, however many there are.
func TestDeadWaitersAreSkipped(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	k := b.svc.proc.Keys("k")
	g := take(t, b, request("k"))
	for i := range 5 {
		dead := protocol.Process{Address: fmt.Sprintf("p%016x", i+1)}
		must(t, b.svc.srv.Client.ZAdd(t.Context(), k.Queue, redis.Z{Score: float64(i), Member: memberOf(dead, request("k"))}).Err())
	}
	must(t, b.svc.srv.Client.ZAdd(t.Context(), k.Queue, redis.Z{Score: 9, Member: "not of ours"}).Err())
	ch := enqueue(t.Context(), t, b2, request("k"))
	start := time.Now()
	must(t, g.Release(t.Context()))
	g2 := get(t, ch)
	if d := time.Since(start); d > time.Second {
		t.Errorf("after %v", d)
	}
	must(t, g2.Release(t.Context()))
	// only dead ones: the key is free
	must(t, b.svc.srv.Client.ZAdd(t.Context(), k.Queue, redis.Z{Score: 1, Member: memberOf(protocol.Process{Address: "p0000000000000001"}, request("k"))}).Err())
	must(t, take(t, b, request("k")).Release(t.Context()))
	if n := b.svc.srv.Client.Exists(t.Context(), k.Lock, k.Queue).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// A dead waiter whose channel is still subscribed delays the next one by at most the
// provisional TTL.
func TestSubscribedDeadWaiter(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	g := take(t, b, request("k"))
	dead := protocol.Process{Address: "p00000000000000aa", Prefix: b.svc.opt.prefix}
	ps := b.svc.srv.Client.Subscribe(t.Context(), dead.Channel())
	defer ps.Close()
	_, err := ps.Receive(t.Context())
	must(t, err)
	r := request("k")
	r.TTL = 200 * time.Millisecond
	must(t, b.svc.srv.Client.ZAdd(t.Context(), b.svc.proc.Keys("k").Queue, redis.Z{Score: 1, Member: memberOf(dead, r)}).Err())
	ch := enqueue(t.Context(), t, b, request("k"))
	start := time.Now()
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
	if d := time.Since(start); d < r.TTL || d >= backend.MaxProvisionalTTL { // which the TTL of the dead waiter shortens
		t.Errorf("after %v", d)
	}
}

// A grant pushed to an attempt that has ended is released.
func TestUnclaimedGrantIsReleased(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	g := take(t, b, request("k"))
	must(t, b.svc.srv.Client.ZAdd(t.Context(), b.svc.proc.Keys("k").Queue, redis.Z{Score: 1, Member: b.svc.member(request("k"))}).Err())
	start := time.Now()
	must(t, g.Release(t.Context()))
	eventually(t, "it is returned", func() bool {
		in, err := b.Inspect(t.Context(), "k")
		must(t, err)
		return in.Holder == nil
	})
	if d := time.Since(start); d > backend.MaxProvisionalTTL-500*time.Millisecond {
		t.Errorf("after %v it may have expired", d)
	}
	for _, bad := range []string{"", "g", "g x", "g x 1 2", "h", "h x y z", "l x", "?"} {
		b.svc.receive(nil, bad)
	}
}

// A notification that arrives during the release does not release the grant a second
// time: Release would return ErrLost.
func TestPushBesideTheRelease(t *testing.T) {
	b := newBackend(t, newPrefix())
	r := request("k")
	g, err := b.Acquire(t.Context(), r)
	must(t, err)
	var sent atomic.Bool
	b.svc.srv.Client.AddHook(beforeEach(func(cmd redis.Cmder) {
		args := cmd.Args()
		if len(args) < 2 || sent.Load() {
			return
		}
		name, ok := args[1].(encoding.BinaryMarshaler)
		if !ok {
			return
		}
		if sha, err := name.MarshalBinary(); err != nil || string(sha) != endScript.SHA || sent.Swap(true) {
			return
		}
		pushed(b, r, g.Token())
		for range 200 { // a release would be sent meanwhile
			must(t, b.svc.srv.Client.Ping(context.Background()).Err())
		}
	}))
	if err := g.Release(t.Context()); err != nil {
		t.Errorf("release of a grant that was held: %v", err)
	}
	if !sent.Load() {
		t.Error("the notification was not sent")
	}
}

// pushed reports to b that r was granted its key just now, as the message of a script does.
func pushed(b *Backend, r backend.Request, token uint64) {
	b.svc.receive(nil, fmt.Sprintf("g %d 1 %s %d %d - %s",
		time.Now().UnixMicro(), r.Owner, token, backend.MaxProvisionalTTL.Milliseconds(), b.svc.proc.Keys(r.Key).Lock))
}

// beforeEach is a hook that is called before each command is sent.
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
