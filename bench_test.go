package lock_test

import (
	"context"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

// BenchmarkLockUnlock is what the core adds to a backend that takes next to no
// time itself; "driver" is that backend alone.
func BenchmarkLockUnlock(b *testing.B) {
	ctx := context.Background()
	b.Run("driver", func(b *testing.B) {
		m := memlock.New()
		defer m.Close(ctx)
		req := backend.Request{Key: "k", Owner: "0123456789abcdef0123456789abcdef", TTL: lock.DefaultTTL}
		b.ReportAllocs()
		for b.Loop() {
			g, err := m.TryAcquire(ctx, req)
			if err != nil {
				b.Fatal(err)
			}
			if err := g.Release(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("lock", func(b *testing.B) {
		c, err := lock.Open(ctx, "mem:")
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close(ctx)
		m := c.Mutex("k")
		b.ReportAllocs()
		for b.Loop() {
			l, err := m.Lock(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}
