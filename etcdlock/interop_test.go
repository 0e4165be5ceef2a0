package etcdlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/interlock-go/lock/backend"
)

// mutexOf returns a Mutex of the etcd client for the lock "k" of a test.
func mutexOf(t *testing.T) *concurrency.Mutex {
	t.Helper()
	s, err := concurrency.NewSession(client(t, server(t)), concurrency.WithTTL(10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return concurrency.NewMutex(s, Folder(t.Name(), "k")[:len(Folder(t.Name(), "k"))-1])
}

// TestPackageConcurrency shares a lock with a Mutex of the etcd client.
func TestPackageConcurrency(t *testing.T) {
	b, m := newBackend(t, server(t)), mutexOf(t)
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	var locked *backend.LockedError
	if _, err := b.TryAcquire(t.Context(), request("k", time.Minute)); !errors.As(err, &locked) || !locked.Holder.Foreign {
		t.Errorf("TryAcquire: %v", err)
	}
	next := waiting(t, t.Context(), b, request("k", time.Minute))
	if err := m.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := granted(t, next)
	if err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock of the Mutex: %v", err)
	}
	release(t, g)
}

// TestDowngradedBesideMutex: a program that knows no shares waits behind a former writer.
func TestDowngradedBesideMutex(t *testing.T) {
	b, m := newBackend(t, server(t)), mutexOf(t)
	g := try(t, b, request("k", time.Minute))
	for range 2 {
		if err := g.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r := try(t, b, reader("k"))
	if err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock of the Mutex beside readers: %v", err)
	}
	release(t, r)
	locked := make(chan error, 1)
	go func() { locked <- m.Lock(t.Context()) }()
	eventually(t, "the Mutex does not wait", func() bool { return len(inspect(t, b, "k").Waiters) == 1 })
	if _, err := b.TryAcquire(t.Context(), reader("k")); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("a reader behind a waiting Mutex: %v", err)
	}
	release(t, g)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestForeignKeys: other programs put keys that look as some of ours to the servers.
func TestForeignKeys(t *testing.T) {
	b, c := newBackend(t, server(t)), client(t, server(t))
	for what, key := range map[string]string{
		"a leader that proclaims": Folder(t.Name(), "k") + "694d",
		"permits of another":      Folder(t.Name(), "k") + "%p7-none",
	} {
		for range 2 {
			if _, err := c.Put(t.Context(), key, downgraded+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		var next []<-chan outcome
		for _, req := range []backend.Request{requestShare("k", 1, 3), requestShare("k", 3, 3)} {
			if _, err := b.TryAcquire(t.Context(), req); !errors.Is(err, backend.ErrLocked) {
				t.Errorf("%s: TryAcquire: %v", what, err)
			}
			next = append(next, waiting(t, t.Context(), b, requestShare("k", req.Share.Weight, 3)))
		}
		if i := inspect(t, b, "k"); i.Holder == nil || !i.Holder.Foreign || len(i.Waiters) != 2 {
			t.Errorf("%s: %+v", what, i)
		}
		if _, err := c.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		for _, ch := range next {
			release(t, granted(t, ch))
		}
	}
}

// TestForeignSlots: another program puts a key of ours with slots that do not exist.
func TestForeignSlots(t *testing.T) {
	b := newBackend(t, server(t))
	req := requestShare("k", 1, 5)
	for _, slots := range []string{"-1", "5", "9223372036854775807,-9223372036854775808"} {
		key := b.svc.folder("k") + name{req.Share, 1, 1}.String()
		if _, err := b.Client().Put(t.Context(), key, req.Owner+" "+slots+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := try(t, b, requestShare("k", 2, 5)).Slots(); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("beside slots %s: got %v, want 0 and 1", slots, got)
		}
		if _, err := b.Break(t.Context(), "k", ""); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeyOfTheSameName deletes the key of a holder and puts it again.
func TestKeyOfTheSameName(t *testing.T) {
	b := newBackend(t, server(t))
	for name, of := range map[string]func(*held) error{
		"Renew":     func(g *held) error { return g.Renew(t.Context(), time.Minute) },
		"Downgrade": func(g *held) error { return g.Downgrade(t.Context()) },
	} {
		g := try(t, b, request("k", time.Minute))
		c := b.Client()
		if err := errors.Join(second(c.Delete(t.Context(), g.key)), second(c.Put(t.Context(), g.key, ""))); err != nil {
			t.Fatal(err)
		}
		if err := of(g); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s of a key that was deleted and put again: want ErrLost, got %v", name, err)
		}
		if _, err := c.Delete(context.Background(), g.key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompaction compacts the revisions that a watch has not received yet.
func TestCompaction(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, request("k", time.Minute))
	next := waiting(t, t.Context(), b, request("k", time.Minute))
	r, err := b.Client().Put(t.Context(), t.Name()+"-else", "")
	if err == nil {
		_, err = b.Client().Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
	release(t, g)
	release(t, granted(t, next))
}

// TestManyHolders has more holders than a transaction may have operations.
func TestManyHolders(t *testing.T) {
	const capacity = 150
	bs := []*Backend{newBackend(t, server(t)), newBackend(t, server(t))}
	for _, share := range []backend.Share{backend.Reader, {Weight: 1, Capacity: capacity}} {
		w := try(t, bs[0], request("k", time.Minute))
		var next []<-chan outcome
		for i := range capacity {
			next = append(next, waiting(t, t.Context(), bs[i%2], requestShare("k", share.Weight, share.Capacity)))
		}
		behind := waiting(t, t.Context(), bs[0], request("k", time.Minute))
		release(t, w)
		taken := map[int]bool{}
		for _, ch := range next {
			for _, n := range granted(t, ch).(backend.SlotHolder).Slots() {
				taken[n] = true
			}
		}
		if len(taken) != share.Capacity {
			t.Errorf("%v: %d slots for %d holders", share, len(taken), capacity)
		}
		if _, err := bs[1].TryAcquire(t.Context(), requestShare("k", share.Weight, share.Capacity)); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("%v: TryAcquire behind a waiter: %v", share, err)
		}
		if i := inspect(t, bs[0], "k"); len(i.Others) != capacity-1 || len(i.Waiters) != 1 {
			t.Errorf("%v: %d others and %d waiters", share, len(i.Others), len(i.Waiters))
		}
		if _, err := bs[1].Break(t.Context(), "k", ""); err != nil {
			t.Fatal(err)
		}
		release(t, granted(t, behind))
	}
}
