package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/interlock-go/lock/backend"
)

// modes are the two ways to wait.
var modes = map[string]Option{"view": WithQueueView(32), "predecessor": WithQueueView(0)}

// TestWaiterIsPutBack deletes the key of a waiter: it puts another one.
func TestWaiterIsPutBack(t *testing.T) {
	for mode, opt := range modes {
		t.Run(mode, func(t *testing.T) {
			holder, b := newBackend(t, server(t)), newBackend(t, server(t), opt)
			for what, remove := range map[string]func() error{
				"lease": func() error { return second(b.client.Revoke(t.Context(), b.Leases()[0])) },
				"key": func() error {
					b.mu.Lock()
					defer b.mu.Unlock()
					for _, a := range b.attempts {
						if _, err := b.client.Delete(t.Context(), a.key); err != nil {
							return err
						}
					}
					return nil
				},
			} {
				g := try(t, holder, request("k", time.Minute))
				// The next keep-alive finds that the lease is gone, well within soon.
				next := waiting(t, t.Context(), b, request("k", 15*time.Second))
				if err := remove(); err != nil {
					t.Fatal(err)
				}
				// A follower reads its own key again when its predecessor is gone.
				notices := mode == "view" || what == "lease"
				for deadline := time.Now().Add(soon); notices; time.Sleep(10 * time.Millisecond) {
					i, err := b.Inspect(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if len(i.Waiters) == 1 {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s: want the waiter in the queue again, got %+v", what, i)
					}
				}
				release(t, g)
				n := granted(t, next)
				if n.Token() <= g.Token() {
					t.Errorf("%s: token %d after %d", what, n.Token(), g.Token())
				}
				release(t, n)
			}
		})
	}
}

func TestOrderOfService(t *testing.T) {
	for mode, opt := range modes {
		t.Run(mode, func(t *testing.T) {
			bs := []*Backend{newBackend(t, server(t), opt), newBackend(t, server(t), opt), newBackend(t, server(t))}
			g := backend.Grant(try(t, bs[0], request("k", time.Minute)))
			var next []<-chan outcome
			var cancels []context.CancelFunc
			var reqs []backend.Request
			for i := range 9 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels = append(cancels, cancel)
				reqs = append(reqs, request("k", time.Minute))
				next = append(next, waiting(t, ctx, bs[i%3], reqs[i]))
			}
			for i, ch := range next {
				if i%3 == 1 {
					cancels[i]()
					if o := <-ch; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, backend.ErrUncertain) {
						t.Fatalf("cancelled: %v, %v", o.g, o.err)
					}
					if err := bs[i%3].Abandon(t.Context(), reqs[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, ch := range next {
				if i%3 == 1 {
					continue
				}
				release(t, g)
				after := g.Token()
				if g = granted(t, ch); g.Token() <= after {
					t.Errorf("token %d after %d", g.Token(), after)
				}
			}
			release(t, g)
		})
	}
}

// TestManyProcesses checks that a waiter watches its predecessor in a queue of many
// processes, and the queue in one of few.
func TestManyProcesses(t *testing.T) {
	addr := server(t)
	const most = 2
	bs := []*Backend{newBackend(t, addr, WithQueueView(most)), newBackend(t, addr, WithQueueView(most)), newBackend(t, addr, WithQueueView(most)), newBackend(t, addr, WithQueueView(most))}
	g := backend.Grant(try(t, bs[0], request("k", time.Minute)))
	views := func(b *Backend) int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.views)
	}
	var next []<-chan outcome
	for i, b := range bs {
		next = append(next, waiting(t, t.Context(), b, request("k", time.Minute)))
		if want := i < most; (views(b) == 1) != want {
			t.Errorf("waiter %d: a view: %v, want %v", i, !want, want)
		}
	}
	for _, ch := range next {
		release(t, g)
		g = granted(t, ch)
	}
	// Four waiters of one process count as one process.
	for range 4 {
		next = append(next[:0:0], waiting(t, t.Context(), bs[3], request("k", time.Minute)))
		release(t, g)
		g = granted(t, next[0])
	}
	if views(bs[3]) != 1 {
		t.Error("no view in a queue of one process")
	}
	release(t, g)
}

// TestFollowedQueue: while a process follows the queue of a lock, its attempts do not make
// the server count the keys. They are granted in order, and when the queue was emptied meanwhile.
func TestFollowedQueue(t *testing.T) {
	b, other := newBackend(t, server(t)), newBackend(t, server(t))
	g := backend.Grant(try(t, other, request("k", time.Minute)))
	for i := range 8 {
		next := waiting(t, t.Context(), b, request("k", time.Minute))
		v := b.followedQueue(b.folder("k"), backend.Share{})
		if v == nil {
			t.Fatalf("waiter %d: no view of a queue that is not empty", i)
		}
		v.leave()
		second := waiting(t, t.Context(), b, request("k", time.Minute))
		last := waiting(t, t.Context(), other, request("k", time.Minute))
		for _, ch := range []<-chan outcome{next, second, last} {
			release(t, g)
			g = granted(t, ch)
		}
	}
	release(t, g)
	for range 50 { // the view may not know of the release yet
		g, err := b.Acquire(t.Context(), request("k", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		release(t, g)
	}
}

// TestCompaction compacts the revisions that a watch has not received yet.
func TestCompaction(t *testing.T) {
	for mode, opt := range modes {
		t.Run(mode, func(t *testing.T) {
			b := newBackend(t, server(t), opt)
			g := try(t, b, request("k", time.Minute))
			next := waiting(t, t.Context(), b, request("k", time.Minute))
			r, err := b.client.Put(t.Context(), t.Name()+"-else", "")
			if err == nil {
				_, err = b.client.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
			}
			if err != nil {
				t.Fatal(err)
			}
			release(t, g)
			release(t, granted(t, next))
		})
	}
}

// TestPackageConcurrency shares a lock with a Mutex of the etcd client.
func TestPackageConcurrency(t *testing.T) {
	b := newBackend(t, server(t))
	c := client(t, server(t))
	s, err := concurrency.NewSession(c, concurrency.WithTTL(10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := concurrency.NewMutex(s, Folder(t.Name(), "k")[:len(Folder(t.Name(), "k"))-1])
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
