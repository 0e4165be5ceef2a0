package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/interlock-go/lock/backend"
)

// TestDowngrade: permits wait behind a former writer, and so does a program that knows no shares.
func TestDowngrade(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, request("k", time.Minute))
	permits := waiting(t, t.Context(), b, requestShare("k", 2, 3))
	if err := g.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i := inspect(t, b, "k"); i.Holder.Share != backend.Reader || len(i.Others) > 0 || len(i.Waiters) != 1 {
		t.Errorf("after a downgrade before permits: %+v", i)
	}
	release(t, g)
	p := granted(t, permits).(*grant)
	if err := p.Downgrade(t.Context()); err != nil || inspect(t, b, "k").Holder.Share != p.a.req.Share {
		t.Errorf("of permits: %v", err)
	}
	release(t, p)

	g = try(t, b, request("k", time.Minute))
	s, err := concurrency.NewSession(client(t, server(t)), concurrency.WithTTL(10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := concurrency.NewMutex(s, Folder(t.Name(), "k")[:len(Folder(t.Name(), "k"))-1])
	r := waiting(t, t.Context(), b, reader("k"))
	for range 2 {
		if err := g.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rg := granted(t, r)
	if rg.Token() <= g.Token() {
		t.Errorf("token %d of a reader after %d", rg.Token(), g.Token())
	}
	if err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock of a Mutex of package concurrency beside readers: %v", err)
	}
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("Renew after Downgrade: %v", err)
	}
	release(t, rg)
	// The former writer is the only reader.
	for _, req := range []backend.Request{requestShare("k", 1, 3), requestShare("k", 3, 3)} {
		if _, err := b.TryAcquire(t.Context(), req); !errors.Is(err, backend.ErrLocked) || registered(b, req) {
			t.Errorf("%v beside a former writer: want ErrLocked, got %v", req.Share, err)
		}
	}
	locked := make(chan error, 1)
	go func() { locked <- m.Lock(t.Context()) }()
	eventually(t, "the Mutex does not wait", func() bool { return len(inspect(t, b, "k").Waiters) == 1 })
	if _, err := b.TryAcquire(t.Context(), reader("k")); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("TryAcquire of a reader behind a waiting Mutex: %v", err)
	}
	release(t, g)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := g.Downgrade(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Downgrade after Release: want ErrLost, got %v", err)
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	g = try(t, b, request("k", time.Minute))
	if err := second(b.Break(t.Context(), "k", "")); err != nil {
		t.Fatal(err)
	}
	// Its attempt has queued again, as one does whose key was deleted while it waited.
	if err := second(b.client.Put(t.Context(), g.key, "")); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = b.client.Delete(context.Background(), g.key) }()
	if err := g.Downgrade(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Downgrade of a broken grant: want ErrLost, got %v", err)
	}
}

// TestForeignKeys: other programs put keys that look as some of ours to the servers.
func TestForeignKeys(t *testing.T) {
	b := newBackend(t, server(t))
	c := client(t, server(t))
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

// TestFollowerBehindReaders: an exclusive waiter that watches its predecessor waits for readers
// that leave in any order, and for a writer that has become one.
func TestFollowerBehindReaders(t *testing.T) {
	b := newBackend(t, server(t), WithQueueView(0))
	w := try(t, b, request("k", time.Minute))
	if err := w.Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	r1, r2 := try(t, b, reader("k")), try(t, b, reader("k"))
	next := waiting(t, t.Context(), b, request("k", time.Minute))
	behind := waiting(t, t.Context(), b, reader("k"))
	for i, g := range []*grant{r1, r2, w} {
		select {
		case o := <-next:
			t.Fatalf("a writer beside %d readers: %v, %v", 3-i, o.g, o.err)
		case <-time.After(20 * time.Millisecond):
		}
		release(t, g)
	}
	release(t, granted(t, next))
	release(t, granted(t, behind))
}

// TestBreakOfAnEndedHolder: a holder whose key was deleted and put again may be a waiter.
func TestBreakOfAnEndedHolder(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, reader("k"))
	r, err := b.client.Get(t.Context(), g.key)
	if err != nil {
		t.Fatal(err)
	}
	ended := newQueue(b.folder("k"), r.Kvs)
	if err := errors.Join(second(b.client.Delete(t.Context(), g.key)), second(b.client.Put(t.Context(), g.key, ""))); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = b.client.Delete(context.Background(), g.key) }()
	if h, err := b.removeHolders(t.Context(), ended.keys); err != nil || h != nil || free(t, b, "k")() {
		t.Errorf("want the key left, got %+v, %v", h, err)
	}
}
