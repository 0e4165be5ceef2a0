package etcdlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// TestNamesAreUsedAgain: the servers keep the names of deleted keys until a compaction. A process puts keys of as many names
// as it had attempts at a time.
func TestNamesAreUsedAgain(t *testing.T) {
	b := newBackend(t, server(t))
	folder := b.svc.folder("k")
	ctx := clientv3.WithRequireLeader(t.Context())
	names := map[string]bool{}
	events := b.Client().Watch(ctx, folder, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-events
	for _, req := range []func() backend.Request{
		func() backend.Request { return request("k", time.Minute) },
		func() backend.Request { return reader("k") },
		func() backend.Request { return requestShare("k", 2, 3) },
	} {
		for range 20 {
			g := try(t, b, req())
			if _, err := b.TryAcquire(t.Context(), request("k", time.Minute)); !errors.Is(err, backend.ErrLocked) {
				t.Fatalf("TryAcquire of a lock that is held: %v", err)
			}
			next := waiting(t, t.Context(), b, request("k", time.Minute))
			release(t, g)
			release(t, granted(t, next))
		}
	}
	last := try(t, b, request("k", time.Minute))
	for seen := int64(0); seen < int64(last.Token()); {
		for _, e := range (<-events).Events {
			names[string(e.Kv.Key)] = true
			seen = e.Kv.ModRevision
		}
	}
	release(t, last)
	if len(names) > 6 { // three shares of two attempts
		t.Errorf("120 attempts of 3 shares, 2 at a time, have %d names: %v", len(names), slices.Sorted(maps.Keys(names)))
	}
}

// TestKeyOfAnother: another program puts the key that an attempt would have. The attempt fails, and does not hold.
func TestKeyOfAnother(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, request("k", time.Minute))
	release(t, g)
	holder := request("k", time.Minute)
	value := valueOf(&places.Place{Contender: backend.Contender{Owner: holder.Owner}})
	if _, err := b.Client().Put(t.Context(), g.key, value, clientv3.WithLease(b.Leases()[0])); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.Acquire(ctx, request("k", time.Minute)); err == nil || ctx.Err() != nil || backend.OutcomeUnknown(err) {
		t.Errorf("want an error at once, with a known outcome, got %v", err)
	}
	if i := inspect(t, b, "k"); i.Holder == nil || i.Holder.Owner != holder.Owner || len(i.Waiters) > 0 {
		t.Errorf("want the other program's holder alone, got %+v", i)
	}
}
