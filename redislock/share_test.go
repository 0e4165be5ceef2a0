package redislock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func shareRequest(key string, s backend.Share) backend.Request {
	r := request(key)
	r.Share = s
	return r
}

func permits(k, n int) backend.Share { return backend.Share{Weight: k, Capacity: n} }

// The key of a shared lock says so, and lives as long as the last holder: SET NX is refused.
func TestSharedKey(t *testing.T) {
	p := newPrefix()
	b, c := newBackend(t, p), client(t, sharedServer(t))
	value := func(want string, least, most time.Duration) {
		t.Helper()
		if v := c.Get(t.Context(), p+":k").Val(); v != want {
			t.Errorf("value %q, want %q", v, want)
		}
		if left := c.PTTL(t.Context(), p+":k").Val(); left < least || left > most {
			t.Errorf("left %v, want %v to %v", left, least, most)
		}
		if ok, err := c.SetNX(t.Context(), p+":k", "another client", time.Second).Result(); ok || err != nil {
			t.Errorf("SET NX of a shared lock: %v, %v", ok, err)
		}
	}
	long := shareRequest("k", permits(2, 5))
	long.TTL = time.Hour
	g1 := take(t, b, long)
	value("@shared p11", 59*time.Minute, time.Hour+2*time.Millisecond)
	g2 := take(t, b, shareRequest("k", permits(1, 5)))
	value("@shared p111", 59*time.Minute, time.Hour+2*time.Millisecond)
	must(t, g1.Release(t.Context()))
	value("@shared p001", 5*time.Second, 10*time.Second+2*time.Millisecond)
	g3 := take(t, b, shareRequest("k", permits(3, 5)))
	if got := fmt.Sprint(g3.(backend.SlotHolder).Slots(), g2.(backend.SlotHolder).Slots()); got != "[0 1 3] [2]" {
		t.Errorf("slots %s", got)
	}
	must(t, errors.Join(g2.Release(t.Context()), g3.Release(t.Context())))
	must(t, take(t, b, shareRequest("k", backend.Reader)).Release(t.Context()))
	if left := c.Keys(t.Context(), "*"+p+":k*").Val(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// A key that was deleted ends all shares, and its holders do not come back.
func TestSharedKeyDeleted(t *testing.T) {
	p := newPrefix()
	b, c := newBackend(t, p), client(t, sharedServer(t))
	old := take(t, b, shareRequest("k", permits(1, 2)))
	must(t, c.Del(t.Context(), p+":k").Err())
	w := take(t, b, request("k"))
	if err := old.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal beside a writer: %v", err)
	}
	must(t, w.Release(t.Context()))
	g := take(t, b, shareRequest("k", permits(3, 3)))
	for _, err := range []error{old.Renew(t.Context(), time.Minute), old.Release(t.Context())} {
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("beside a new holder: %v", err)
		}
	}
	if got := fmt.Sprint(g.(backend.SlotHolder).Slots()); got != "[0 1 2]" {
		t.Errorf("slots %s", got)
	}
	must(t, g.Release(t.Context()))
}

// A share whose lease has ended is lost, although the key lasts as long as that of another holder.
func TestRenewalOfAnExpiredShare(t *testing.T) {
	b := newBackend(t, newPrefix())
	other := take(t, b, shareRequest("k", backend.Reader))
	r := shareRequest("k", backend.Reader)
	r.TTL = 100 * time.Millisecond
	g := take(t, b, r)
	time.Sleep(time.Until(g.Until()) + 50*time.Millisecond) // its lease ends at the server
	if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewed: %v, want ErrLost", err)
	}
	must(t, other.Release(t.Context()))
}

// A cycle of a share is two scripts, as that of the whole key. A renewal is one.
func TestShareCommands(t *testing.T) {
	addr := private(t)
	b, c := openURL(t, "redis://"+addr), client(t, addr)
	must(t, take(t, b, shareRequest("k", backend.Reader)).Release(t.Context()))
	before := calls(t, c, "evalsha", "eval")
	for range 10 {
		g := take(t, b, shareRequest("k", permits(1, 3)))
		must(t, g.Renew(t.Context(), time.Minute))
		must(t, g.Release(t.Context()))
	}
	if n := calls(t, c, "evalsha", "eval") - before; n != 30 {
		t.Errorf("%d scripts", n)
	}
}

// Shares need a few permissions more, which exclusive locks do without.
func TestLeastPrivilegeOfShares(t *testing.T) {
	addr := private(t)
	admin := client(t, addr)
	rules := func(s string) { setRules(t, admin, s) }
	rules(aclRules)
	b := openURL(t, "redis://app:app-secret@"+addr)
	cycle := func() error {
		g1, err := b.TryAcquire(t.Context(), shareRequest("k", permits(1, 2)))
		if err != nil {
			return err
		}
		if _, err = b.Inspect(t.Context(), "k"); err != nil {
			return err
		}
		g2, err := b.TryAcquire(t.Context(), shareRequest("k", permits(1, 2)))
		if err != nil {
			return err
		}
		return errors.Join(g1.Renew(t.Context(), time.Minute), g1.Release(t.Context()), g2.Release(t.Context()))
	}
	for _, cmd := range []string{"hget", "hset", "hdel", "zcard"} {
		rules(aclRules + " -" + cmd)
		if err := cycle(); err == nil {
			t.Errorf("without %s: want an error", cmd)
		}
		must(t, admin.FlushAll(t.Context()).Err())
	}
	rules(aclRules)
	must(t, cycle())
}

// A holder of many permits that are not beside each other has a long record. An answer has all of it.
func TestHolderOfScatteredPermits(t *testing.T) {
	b := newBackend(t, newPrefix())
	const n = 200
	var all []backend.Grant
	for range n {
		all = append(all, take(t, b, shareRequest("k", permits(1, n))))
	}
	for i := 0; i < n; i += 2 {
		must(t, all[i].Release(t.Context()))
	}
	r := shareRequest("k", permits(n/2, n))
	r.TTL = 5 * time.Second // it is the first to end
	take(t, b, r)
	want := func(h *backend.Holder) {
		t.Helper()
		if h == nil || h.Owner != r.Owner || h.Share != r.Share || len(h.Slots) != n/2 || h.Metadata != r.Metadata {
			t.Errorf("holder %+v", h)
		}
	}
	var locked *backend.LockedError
	if _, err := b.TryAcquire(t.Context(), request("k")); !errors.As(err, &locked) {
		t.Fatal(err)
	}
	want(&locked.Holder)
	_, err := b.Break(t.Context(), "k", request("k").Owner)
	if !errors.As(err, &locked) {
		t.Fatal(err)
	}
	want(&locked.Holder)
	h, err := b.Break(t.Context(), "k", r.Owner)
	must(t, err)
	want(h)
}
