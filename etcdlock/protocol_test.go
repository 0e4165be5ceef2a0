package etcdlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/interlock-go/lock/backend"
)

func TestOwnerCmp(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("k", 5*time.Second)
	g := try(t, b, req)
	holds := func(name, owner string, token uint64) bool {
		r, err := b.Client().Txn(t.Context()).If(b.OwnerCmp(name, owner, token)).Then(clientv3.OpPut(t.Name()+"-data", "x")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r.Succeeded
	}
	if !holds("k", req.Owner, g.Token()) {
		t.Error("false for the holder")
	}
	if holds("k", req.Owner, g.Token()+1) || holds("k", req.Owner, 0) || holds("other", req.Owner, g.Token()) || holds("k", request("k", 0).Owner, g.Token()) {
		t.Error("true for another grant")
	}
	if _, err := b.Break(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if holds("k", req.Owner, g.Token()) {
		t.Error("true for a broken grant")
	}
	req = request("k", 5*time.Second)
	g = try(t, b, req)
	release(t, g)
	if holds("k", req.Owner, g.Token()) {
		t.Error("true for a released grant")
	}
}

// TestAnotherTTL moves a held key between leases.
func TestAnotherTTL(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("k", 5*time.Second)
	g := try(t, b, req)
	token := g.Token()
	first := b.Leases()
	for _, ttl := range []time.Duration{time.Minute, 50 * time.Second, 5 * time.Second, 2 * time.Minute} {
		before := time.Now()
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if left := g.Until().Sub(before); left > ttl+time.Second || left < ttl-2*time.Second {
			t.Errorf("renewed to %v: %v left", ttl, left)
		}
		i, err := b.Inspect(t.Context(), "k")
		if err != nil || i.Holder == nil || i.Holder.Token != token || i.Holder.Left < ttl-2*time.Second || g.Token() != token {
			t.Errorf("renewed to %v: %+v, %v", ttl, i.Holder, err)
		}
	}
	if n := len(b.Leases()); n != 3 {
		t.Errorf("leases: %d, want those of 5, 60 and 120 s", n)
	}
	if _, err := b.client.Revoke(t.Context(), first[0]); err != nil {
		t.Fatal(err)
	}
	if err := g.Renew(t.Context(), 2*time.Minute); err != nil {
		t.Errorf("the end of its first lease: %v", err)
	}
	if err := b.Abandon(t.Context(), req); err != nil {
		t.Error(err)
	}
	if err := g.Renew(t.Context(), 5*time.Second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("after Abandon: %v", err)
	}
}

// TestLateRequest executes an acquire after its attempt was abandoned.
func TestLateRequest(t *testing.T) {
	b := newBackend(t, server(t))
	for _, how := range []string{"try", "enqueue"} {
		req := request(how, 5*time.Second)
		s, err := b.session(t.Context(), req.TTL)
		if err != nil {
			t.Fatal(err)
		}
		a := b.newAttempt(req)
		a.begin(s)
		a.unanswered()
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		late := b.newAttempt(req)
		if how == "try" {
			_, err = late.try(t.Context(), s)
		} else {
			_, err = late.enqueue(t.Context(), s)
		}
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", how, err)
		}
		if i, err := b.Inspect(t.Context(), req.Key); err != nil || i.Holder != nil {
			t.Errorf("%s: %+v, %v", how, i, err)
		}
		s.leave()
		// of a lease that is gone nothing has to be refused
		req = request(how, 5*time.Second)
		a = b.newAttempt(req)
		a.begin(s)
		a.unanswered()
		if _, err := b.client.Revoke(t.Context(), s.id); err != nil {
			t.Fatal(err)
		}
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Errorf("%s: Abandon without a lease: %v", how, err)
		}
	}
}

func TestPushesLoss(t *testing.T) {
	b := newBackend(t, server(t))
	for what, end := range map[string]func(g *grant) error{
		"break":  func(*grant) error { return second(b.Break(t.Context(), "k")) },
		"delete": func(g *grant) error { return second(b.client.Delete(t.Context(), g.key)) },
		"revoke": func(g *grant) error { return second(b.client.Revoke(t.Context(), g.first.id)) },
	} {
		lost := make(chan error, 10)
		req := request("k", time.Minute)
		req.OnLost = func(err error) { lost <- err }
		g := try(t, b, req)
		if err := end(g); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-lost:
			if !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(soon):
			t.Errorf("%s: the holder was not told", what)
		}
		if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: Renew: %v", what, err)
		}
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: Release: %v", what, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.attempts) > 0 {
		t.Errorf("attempts that are over: %d", len(b.attempts))
	}
}

// modes are the ways of waiting.
var modes = map[string]Option{"view": WithQueueView(32), "predecessor": WithQueueView(0)}

// TestWaiterIsPutBack removes the places of waiters under their feet.
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
				// a keep-alive that finds the lease gone comes well within soon
				next := waiting(t, t.Context(), b, request("k", 15*time.Second))
				if err := remove(); err != nil {
					t.Fatal(err)
				}
				// who watches its predecessor sees its own key again when that is gone
				sees := mode == "view" || what == "lease"
				for deadline := time.Now().Add(soon); sees; time.Sleep(10 * time.Millisecond) {
					i, err := b.Inspect(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if len(i.Waiters) == 1 {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s: not back in the queue: %+v", what, i)
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

// TestManyProcesses makes a waiter watch its predecessor, and a later one the queue.
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
	// the four places of one process are no crowd
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

// TestCompaction compacts what a watch has not yet been told.
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

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func free(t *testing.T, b *Backend, key string) func() bool {
	return func() bool {
		i, err := b.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return i.Holder == nil
	}
}

func users(s *session) int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.users
}

// losable is a request whose loss is told to the channel.
func losable(key string, ttl time.Duration) (backend.Request, <-chan error) {
	lost := make(chan error, 10)
	req := request(key, ttl)
	req.OnLost = func(err error) { lost <- err }
	return req, lost
}

// TestMoveToAVanishedLease: the key was never under it, so nothing is lost.
func TestMoveToAVanishedLease(t *testing.T) {
	b := newBackend(t, server(t))
	req, lost := losable("a", 10*time.Second)
	g := try(t, b, req)
	h := try(t, b, request("b", 30*time.Second))
	if err := second(b.client.Revoke(t.Context(), h.first.id)); err != nil {
		t.Fatal(err)
	}
	if err := g.Renew(t.Context(), 30*time.Second); err == nil || errors.Is(err, backend.ErrLost) {
		t.Errorf("a renewal to a lease that has vanished: %v", err)
	}
	if err := g.Renew(t.Context(), 30*time.Second); err != nil {
		t.Errorf("the next renewal: %v", err)
	}
	if len(lost) > 0 {
		t.Errorf("told of a loss: %v", <-lost)
	}
	release(t, g)
	if n := users(h.first); n != 0 {
		t.Errorf("%d users of the vanished lease", n)
	}
}

// TestLossOfOneOfTwoLeases: the key is under the other, which lives.
func TestLossOfOneOfTwoLeases(t *testing.T) {
	b, n := lossy(t)
	req, lost := losable("k", 30*time.Second)
	g := try(t, b, req)
	n.set("request")
	if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrUncertain) {
		t.Fatalf("a renewal whose request was lost: want ErrUncertain, got %v", err)
	}
	n.set("")
	s := g.others[0]
	s.die(backend.ErrLost, false)
	if err := <-lost; !errors.Is(err, backend.ErrLost) {
		t.Error(err)
	}
	eventually(t, "the key stays, and nobody has it", free(t, b, "k"))
	eventually(t, "a lease keeps its user", func() bool { return users(g.first) == 0 && users(s) == 0 })
}

// TestLateRequestAfterALoss: a request to acquire that was sent again is executed
// when what was granted is lost already.
func TestLateRequestAfterALoss(t *testing.T) {
	b, n := lossy(t)
	keeper := try(t, b, request("keeper", time.Minute))
	for _, what := range []string{"told", "found by Renew"} {
		req, lost := losable("k", time.Minute)
		if what != "told" {
			req.OnLost = nil
		}
		g := try(t, b, req)
		g.a.unanswered()
		n.set("request")
		if _, err := b.client.Txn(t.Context()).If(
			clientv3.Compare(clientv3.CreateRevision(g.key), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(b.tombstone(g.first.id, req.Owner)), "=", 0),
		).Then(g.a.put(g.first)).Commit(); err == nil {
			t.Fatal("the request was not lost")
		}
		n.set("")
		if err := second(b.Break(t.Context(), "k")); err != nil {
			t.Fatal(err)
		}
		var err error
		if what == "told" {
			err = <-lost
		} else {
			err = g.Renew(t.Context(), time.Minute)
		}
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
		eventually(t, what+": the attempt is not forgotten", g.forgotten)
		if done, err := n.late(); err != nil || done {
			t.Errorf("%s: a request that comes after the loss: want it refused, got %v, %v", what, done, err)
		}
		if !free(t, b, "k")() {
			t.Fatalf("%s: the key is held by nobody", what)
		}
	}
	release(t, keeper)
}

// TestThirdLease: a key that may be under any of several is lost with each of them.
func TestThirdLease(t *testing.T) {
	b, n := lossy(t)
	req, lost := losable("k", 30*time.Second)
	g := try(t, b, req)
	for _, r := range []struct {
		lose string
		ttl  time.Duration
	}{{"request", time.Minute}, {"reply", 5 * time.Second}, {"request", 2 * time.Minute}} {
		n.set(r.lose)
		if err := g.Renew(t.Context(), r.ttl); !errors.Is(err, backend.ErrUncertain) {
			t.Fatalf("a renewal without an answer: want ErrUncertain, got %v", err)
		}
	}
	n.set("")
	if left := time.Until(g.Until()); left > 5*time.Second {
		t.Errorf("a key that is under a lease of 5 s: trusted for %v", left)
	}
	b.mu.Lock()
	s := b.sessions[5]
	b.mu.Unlock()
	s.die(backend.ErrLost, false)
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Error("the lease that the key is under has ended, and the holder was not told")
	}
	eventually(t, "the key stays", free(t, b, "k"))
}

// TestForgottenMove: a loss, or a release, comes between the steps of a move.
func TestForgottenMove(t *testing.T) {
	b := newBackend(t, server(t))
	g, h := try(t, b, request("g", time.Minute)), try(t, b, request("h", time.Minute))
	s, err := b.session(t.Context(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	if _, err := g.try(s); err != nil {
		t.Fatal(err)
	}
	g.forget()
	if err := g.settle(s); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a move that ends after the grant was forgotten: %v", err)
	}
	if n := users(h.s); n != 1 {
		t.Errorf("the first lease has %d users, want the other grant", n)
	}
	if n := users(s); n != 1 {
		t.Errorf("the second lease has %d users, want the test", n)
	}
	h.lose(backend.ErrLost)
	if _, err := h.try(s); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a move that begins after the loss: %v", err)
	}
	if n := users(s); n != 1 {
		t.Errorf("then the second lease has %d users, want the test", n)
	}
	for _, g := range []*grant{g, h} {
		if err := second(b.client.Delete(t.Context(), g.key)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAbandonedMove: an attempt is abandoned while its grant moves.
func TestAbandonedMove(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("g", time.Minute)
	g, h := try(t, b, req), try(t, b, request("h", time.Minute))
	s, err := b.session(t.Context(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	if _, err := g.try(s); err != nil {
		t.Fatal(err)
	}
	if err := b.Abandon(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := g.settle(s); err != nil {
		t.Error(err)
	}
	if n, m := users(h.s), users(s); n != 1 || m != 1 {
		t.Errorf("%d users of the first lease, want the other grant; %d of the second, want the test", n, m)
	}
	release(t, h)
}

// TestOwnerCmpBesideRelease is for the race detector.
func TestOwnerCmpBesideRelease(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("k", time.Minute)
	g := try(t, b, req)
	var wg sync.WaitGroup
	var stop atomic.Bool
	begun := make(chan struct{})
	wg.Go(func() {
		b.OwnerCmp("k", req.Owner, g.Token())
		close(begun)
		for !stop.Load() {
			b.OwnerCmp("k", req.Owner, g.Token())
		}
	})
	<-begun
	release(t, g)
	stop.Store(true)
	wg.Wait()
}

// TestGrantUnderADeadLease leaves no watch of what is lost already.
func TestGrantUnderADeadLease(t *testing.T) {
	b := newBackend(t, server(t))
	req, lost := losable("k", time.Minute)
	s, err := b.session(t.Context(), req.TTL)
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	a := b.newAttempt(req)
	a.begin(s)
	s.vanished()
	g := a.grant(s, 1)
	if g.watch.Stop() {
		t.Error("the key will be watched")
	}
	if err := <-lost; !errors.Is(err, backend.ErrLost) {
		t.Error(err)
	}
	g.stop()
}

// TestRetiredAfterItDied: a lease that is revoked already is not remembered.
func TestRetiredAfterItDied(t *testing.T) {
	b := newBackend(t, server(t))
	s, err := b.session(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s.leave()
	s.die(backend.ErrLost, false)
	b.mu.Lock()
	s.idle = time.Now().Add(-time.Hour)
	b.mu.Unlock()
	if !s.retire() {
		t.Error("an unused lease is kept")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.buried) > 0 {
		t.Error("its lease is to be revoked again")
	}
}
