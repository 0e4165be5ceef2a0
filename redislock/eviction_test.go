package redislock

import (
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
	must(t, b.srv.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if c := strings.Join(openURL(t, "redis://"+addr).Capabilities().Caveats, " "); !strings.Contains(c, "would evict") {
		t.Error(c)
	}
}

// A server without free memory refuses new locks, and still renews, releases and hands over.
func TestOutOfMemory(t *testing.T) {
	addr := private(t, "--maxmemory-policy", "noeviction")
	b := openURL(t, "redis://"+addr)
	g := take(t, b, request("k"))
	ch := queue(t.Context(), t, b, request("k"))
	must(t, b.srv.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := b.TryAcquire(t.Context(), request("other"))
	if err == nil || !strings.Contains(err.Error(), "OOM") || isUncertain(err) {
		t.Errorf("acquire: %v", err)
	}
	must(t, g.Renew(t.Context(), 5*time.Second))
	must(t, g.Release(t.Context()))
	g = get(t, ch)
	// and what leaves a tombstone is done, with it
	k := b.proc.Keys("k")
	late := request("k")
	must(t, b.Abandon(t.Context(), late))
	must(t, b.Abandon(t.Context(), late))
	g.(*grant).a.unanswered.Store(true)
	must(t, g.Release(t.Context()))
	if n := b.srv.Client.Exists(t.Context(), k.Tombstone(late.Owner), k.Tombstone(g.(*grant).a.req.Owner)).Val(); n != 2 {
		t.Errorf("%d tombstones", n)
	}
	if n := b.srv.Client.Exists(t.Context(), k.Lock, k.Queue).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
	must(t, b.srv.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
}
