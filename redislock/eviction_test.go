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
