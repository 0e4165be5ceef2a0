package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

func TestAcquireRelease(t *testing.T) {
	p := newPrefix()
	b, b2, c := newBackend(t, p), newBackend(t, p), client(t, sharedServer(t))
	req := request("k")
	before := time.Now()
	g := take(t, b, req)
	if v := c.Get(t.Context(), p+":k").Val(); v != fmt.Sprintf("%s %d test k", b.svc.proc.OwnerAddress(req.Owner), g.Token()) {
		t.Errorf("value %q", v)
	}
	if left := c.PTTL(t.Context(), p+":k").Val(); left <= 9*time.Second || left > 10*time.Second {
		t.Errorf("left %v", left)
	}
	if u := g.Until(); u.Before(before.Add(10*time.Second)) || u.After(time.Now().Add(10*time.Second)) {
		t.Errorf("until in %v", time.Until(u))
	}
	again := take(t, b, req) // idempotent
	if again.Token() != g.Token() || g.Token() == 0 {
		t.Errorf("tokens %d, %d", g.Token(), again.Token())
	}
	_, err := b2.TryAcquire(t.Context(), request("k"))
	var le *backend.LockedError
	if !errors.As(err, &le) || le.Holder.Owner != req.Owner || le.Holder.Metadata != "test k" || le.Holder.Token != g.Token() || le.Holder.Foreign || le.Holder.Left <= 0 {
		t.Fatalf("refusal: %v", err)
	}
	must(t, g.Renew(t.Context(), 20*time.Second))
	if left := c.PTTL(t.Context(), p+":k").Val(); left <= 19*time.Second {
		t.Errorf("left after renewal %v", left)
	}
	if time.Until(g.Until()) < 19*time.Second {
		t.Errorf("Until was not moved")
	}
	must(t, g.Release(t.Context()))
	if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("second release: %v", err)
	}
	if err := g.Renew(t.Context(), time.Second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal after release: %v", err)
	}
	g2 := take(t, b2, request("k"))
	if g2.Token() <= g.Token() {
		t.Errorf("token %d after %d", g2.Token(), g.Token())
	}
	if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("release of a successor's: %v", err)
	}
	must(t, g2.Release(t.Context()))
	if n := c.Exists(t.Context(), p+":k", "{"+p+":k}:q").Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// Inspect derives ages from tokens and scores, which are times of the server's clock. A
// time ahead of the clock gives no age.
func TestAges(t *testing.T) {
	p := newPrefix()
	b := newBackend(t, p)
	k := b.svc.proc.Keys("k")
	begun, r := time.Now(), request("k")
	g := take(t, b, r)
	ctx, cancel := context.WithCancel(t.Context())
	ch := enqueue(ctx, t, b, request("k"))
	inspect := func() (holder, waiter time.Duration) {
		in, err := b.Inspect(t.Context(), "k")
		must(t, err)
		return in.Holder.Age, in.Waiters[0].Age
	}
	h1, w1 := inspect()
	time.Sleep(2 * time.Millisecond) // the age itself, not a synchronisation
	h2, w2 := inspect()
	if most := time.Since(begun) + time.Second; h1 <= 0 || w1 <= 0 || w1 > h1 || h2-h1 < 2*time.Millisecond || w2-w1 < 2*time.Millisecond || h2 > most {
		t.Errorf("ages of holder and waiter: %v and %v, then %v and %v", h1, w1, h2, w2)
	}
	future := time.Now().Add(time.Hour).UnixMicro()
	must(t, b.svc.srv.Client.Set(t.Context(), k.Lock, fmt.Sprintf("%s %d", b.svc.proc.OwnerAddress(r.Owner), future), time.Minute).Err())
	m := b.svc.srv.Client.ZRange(t.Context(), k.Queue, 0, 0).Val()[0]
	must(t, b.svc.srv.Client.ZAdd(t.Context(), k.Queue, redis.Z{Score: float64(future), Member: m}).Err())
	if h, w := inspect(); h != 0 || w != 0 {
		t.Errorf("ages by times of the future: %v and %v", h, w)
	}
	cancel()
	<-ch
	must(t, b.svc.srv.Client.Del(t.Context(), k.Queue).Err())
	must(t, g.Release(t.Context()))
}
