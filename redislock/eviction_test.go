package redislock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func TestEviction(t *testing.T) {
	addr := private(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
	err := openError(t, "redis://"+addr)
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "volatile-lru") || !strings.Contains(err.Error(), "eviction=accept") {
		t.Error(err)
	}
	b := openURL(t, "redis://"+addr+"?eviction=accept")
	if c := b.Capabilities(); c.Order != backend.Unordered || c.Wake != backend.WakePoll ||
		!strings.Contains(strings.Join(c.Caveats, " "), "volatile-lru evicts keys") {
		t.Errorf("%+v", c)
	}
	must(t, b.svc.srv.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if c := strings.Join(openURL(t, "redis://"+addr).Capabilities().Caveats, " "); !strings.Contains(c, "would evict") {
		t.Error(c)
	}
}

// Readers, permits and a writer that was downgraded renew, release and hand over while the memory is full.
func TestSharesOutOfMemory(t *testing.T) {
	addr := private(t, "--maxmemory-policy", "noeviction")
	b := openURL(t, "redis://"+addr)
	reader, permit := request("reader"), request("permit")
	reader.Share, permit.Share = backend.Reader, backend.Share{Weight: 2, Capacity: 3}
	downgraded := take(t, b, request("downgraded"))
	must(t, downgraded.(backend.Downgrader).Downgrade(t.Context()))
	later := take(t, b, request("later"))
	grants := []backend.Grant{take(t, b, reader), take(t, b, permit), downgraded}
	var waiting []<-chan acquired
	for _, key := range []string{"reader", "permit", "downgraded"} {
		r := request(key)
		if key == "permit" {
			r.Share = permit.Share
		}
		waiting = append(waiting, enqueue(t.Context(), t, b, r))
	}
	must(t, b.svc.srv.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	defer b.svc.srv.Client.ConfigSet(context.Background(), "maxmemory", "0")

	for i, g := range grants {
		if err := g.Renew(t.Context(), time.Minute); err != nil {
			t.Errorf("renewal of %d: %v", i, err)
		}
	}
	if err := later.(backend.Downgrader).Downgrade(t.Context()); err != nil {
		t.Errorf("downgrade: %v", err)
	}
	must(t, later.Renew(t.Context(), time.Minute))
	again, err := b.TryAcquire(t.Context(), reader) // as an attempt does whose notification was lost
	if err != nil {
		t.Errorf("the same attempt again: %v", err)
	} else {
		must(t, again.Renew(t.Context(), time.Minute))
	}
	for _, share := range []backend.Share{{}, backend.Reader, permit.Share} {
		r := request("other")
		r.Share = share
		if _, err := b.TryAcquire(t.Context(), r); err == nil || isUncertain(err) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("a new attempt at %+v: %v", share, err)
		}
	}
	for i, g := range grants {
		must(t, g.Release(t.Context()))
		must(t, getWithin(t, 5*time.Second, waiting[i]).Release(t.Context()))
	}
	must(t, later.Release(t.Context()))
}

// A server without free memory refuses new locks, and still renews, releases, hands over, breaks and refuses late requests.
func TestOutOfMemory(t *testing.T) {
	addr := private(t, "--maxmemory-policy", "noeviction")
	b, b2, c := openURL(t, "redis://"+addr), openURL(t, "redis://"+addr), client(t, addr)
	px := newProxy(t, addr)
	unsure := openURL(t, "redis://"+px.Addr)
	g, free, late := take(t, b, request("k")), take(t, b, request("free")), request("late")
	px.Next(acquireScript, drop)
	if _, err := unsure.TryAcquire(t.Context(), late); !isUncertain(err) {
		t.Fatalf("without a reply: %v", err)
	}
	ch := enqueue(t.Context(), t, b, request("k"))
	behind := enqueue(t.Context(), t, b2, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := request("k")
	last := enqueue(ctx, t, b2, ended)
	must(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	defer c.ConfigSet(context.Background(), "maxmemory", "0")

	_, err := b.TryAcquire(t.Context(), request("other"))
	if err == nil || !strings.Contains(err.Error(), "OOM") || isUncertain(err) {
		t.Errorf("acquire: %v", err)
	}
	for _, err := range b.RenewBatch(t.Context(), batchOf(5*time.Second, g, free)) {
		must(t, err)
	}
	must(t, free.Release(t.Context()))
	must(t, g.Release(t.Context()))
	g = getWithin(t, 5*time.Second, ch)
	must(t, g.Renew(t.Context(), time.Minute))
	cancel()
	<-last
	must(t, b2.Abandon(t.Context(), ended))
	_, err = b2.Break(t.Context(), "k", "")
	must(t, err)
	must(t, getWithin(t, 5*time.Second, behind).Release(t.Context()))
	for range 2 {
		must(t, unsure.Abandon(t.Context(), late))
	}
	k := b.svc.proc.Keys("late")
	if n := c.Exists(t.Context(), k.Tombstone(late.Owner)).Val(); n != 1 {
		t.Error("a late request is not refused")
	}
	if n := c.Exists(t.Context(), k.Lock, b.svc.proc.Keys("k").Lock, b.svc.proc.Keys("k").Queue, b.svc.proc.Keys("free").Lock).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}
