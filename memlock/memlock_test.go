package memlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

var owners atomic.Uint64

func request(key string, ttl time.Duration) backend.Request {
	return backend.Request{Key: key, Owner: fmt.Sprintf("%032x", owners.Add(1)), TTL: ttl}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantErr(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

// wantEmpty checks that a space without holders takes no memory for locks.
func wantEmpty(t testing.TB, s *Space) {
	t.Helper()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n := len(sh.locks)
		sh.mu.Unlock()
		if n != 0 {
			t.Fatalf("shard %d still has %d locks", i, n)
		}
	}
}

func TestTryAndRelease(t *testing.T) {
	ctx, s := t.Context(), NewSpace()
	a, b := s.Backend(), s.Backend()
	req := request("k", time.Minute)
	req.Metadata = "me"
	g := must(a.TryAcquire(ctx, req))(t)
	_, err := b.TryAcquire(ctx, request("k", time.Minute))
	wantErr(t, err, backend.ErrLocked)
	var locked *backend.LockedError
	if !errors.As(err, &locked) || locked.Holder.Metadata != "me" || locked.Holder.Token != g.Token() || locked.Holder.Left <= 0 {
		t.Fatalf("the holder is not described: %v", err)
	}
	again := must(a.TryAcquire(ctx, req))(t)
	if again.Token() != g.Token() {
		t.Fatalf("an attempt sent twice got tokens %d and %d", g.Token(), again.Token())
	}
	other := must(b.TryAcquire(ctx, request("other", time.Minute)))(t)
	if err := g.Release(ctx); err != nil {
		t.Fatal(err)
	}
	wantErr(t, g.Release(ctx), backend.ErrLost)
	wantErr(t, g.Renew(ctx, time.Minute), backend.ErrLost)
	next := must(b.TryAcquire(ctx, request("k", time.Minute)))(t)
	if next.Token() <= g.Token() {
		t.Fatalf("token %d after %d", next.Token(), g.Token())
	}
	wantErr(t, g.Release(ctx), backend.ErrLost) // and leaves the successor alone
	if err := errors.Join(next.Release(ctx), other.Release(ctx)); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, s)
}

func TestQueueIsFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		g := must(s.Backend().TryAcquire(ctx, request("k", time.Minute)))(t)
		last := g.Token()
		var order []int
		dead, cancel := context.WithCancel(ctx)
		for i := range 10 {
			waitCtx := ctx
			if i == 4 || i == 9 {
				waitCtx = dead
			}
			go func() {
				g, err := s.Backend().Acquire(waitCtx, request("k", time.Minute))
				if waitCtx == dead {
					wantErr(t, err, context.Canceled)
					return
				}
				order = append(order, i)
				if g.Token() <= last {
					t.Errorf("token %d after %d", g.Token(), last)
				}
				last = g.Token()
				if left := time.Until(g.Until()); left != time.Minute {
					t.Errorf("a fresh grant has %v left", left)
				}
				_, err = s.Backend().TryAcquire(ctx, request("k", time.Minute))
				wantErr(t, err, backend.ErrLocked)
				time.Sleep(time.Second)
				if err := g.Release(ctx); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		info := must(s.Backend().Inspect(ctx, "k"))(t)
		if info.Holder == nil || len(info.Waiters) != 8 {
			t.Fatalf("want a holder and 8 waiters, got %+v", info)
		}
		if err := g.Release(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []int{0, 1, 2, 3, 5, 6, 7, 8}; !slices.Equal(order, want) {
			t.Fatalf("served in order %v, want %v", order, want)
		}
		wantEmpty(t, s)
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		start := time.Now()
		g := must(s.Backend().TryAcquire(ctx, request("k", 10*time.Second)))(t)
		time.Sleep(8 * time.Second)
		if err := g.Renew(ctx, 10*time.Second); err != nil { // now until 18 s
			t.Fatal(err)
		}
		w := must(s.Backend().Acquire(ctx, request("k", 2*time.Second)))(t)
		if at := time.Since(start); at != 18*time.Second {
			t.Fatalf("passed on after %v, want 18s", at)
		}
		wantErr(t, g.Renew(ctx, time.Minute), backend.ErrLost)
		wantErr(t, g.Release(ctx), backend.ErrLost)
		time.Sleep(2*time.Second - 1)
		if _, err := s.Backend().TryAcquire(ctx, request("k", time.Second)); !errors.Is(err, backend.ErrLocked) {
			t.Fatalf("a nanosecond before the TTL: %v", err)
		}
		time.Sleep(time.Nanosecond)
		wantErr(t, w.Renew(ctx, time.Minute), backend.ErrLost) // never re-creates
		must(s.Backend().TryAcquire(ctx, request("k", time.Second)))(t)
		time.Sleep(time.Second)
		if info := must(s.Backend().Inspect(ctx, "k"))(t); info.Holder != nil {
			t.Fatalf("an expired holder is shown: %+v", info.Holder)
		}
		wantEmpty(t, s)
	})
}

func TestAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		b := s.Backend()
		first := must(b.TryAcquire(ctx, request("k", time.Minute)))(t)
		time.Sleep(3 * time.Second)
		second := make(chan backend.Grant)
		go func() { second <- must(b.Acquire(ctx, request("k", time.Minute)))(t) }()
		synctest.Wait()
		time.Sleep(time.Second)
		ages := func() (held, waits time.Duration) {
			info := must(b.Inspect(ctx, "k"))(t)
			for _, w := range info.Waiters {
				waits = w.Age
			}
			return info.Holder.Age, waits
		}
		if held, waits := ages(); held != 4*time.Second || waits != time.Second {
			t.Errorf("got a holder of %v and a waiter of %v, want 4s and 1s", held, waits)
		}
		wantErr(t, first.Release(ctx), nil)
		g := <-second
		time.Sleep(2 * time.Second)
		if held, _ := ages(); held != 2*time.Second {
			t.Errorf("after the hand-off: held for %v, want 2s", held)
		}
		wantErr(t, g.Release(ctx), nil)
		wantEmpty(t, s)
	})
}

func TestRenewalNeverShortens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		start := time.Now()
		g := must(s.Backend().TryAcquire(ctx, request("k", time.Hour)))(t)
		served := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				must(s.Backend().Acquire(ctx, request("k", time.Second)))(t)
				served <- time.Since(start)
			}()
		}
		synctest.Wait()
		if err := g.Renew(ctx, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if a, b := <-served, <-served; a != time.Hour || b != time.Hour+time.Second {
			t.Fatalf("served after %v and %v, want 1h and 1s later", a, b)
		}
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		if h, err := s.Backend().Break(ctx, "k", ""); h != nil || err != nil {
			t.Fatalf("break of a free lock: %v, %v", h, err)
		}
		lost := make(chan error, 1)
		req := request("k", time.Minute)
		req.OnLost = func(err error) { lost <- err }
		g := must(s.Backend().TryAcquire(ctx, req))(t)
		next := make(chan backend.Grant, 1)
		go func() { next <- must(s.Backend().Acquire(ctx, request("k", time.Minute)))(t) }()
		synctest.Wait()
		h := must(s.Backend().Break(ctx, "k", ""))(t)
		if h == nil || h.Owner != req.Owner || h.Token != g.Token() {
			t.Fatalf("removed %+v", h)
		}
		wantErr(t, <-lost, backend.ErrLost)
		if n := <-next; n.Token() <= g.Token() {
			t.Fatalf("token %d after %d", n.Token(), g.Token())
		}
		wantErr(t, g.Release(ctx), backend.ErrLost)
		wantErr(t, g.Renew(ctx, time.Minute), backend.ErrLost)
	})
}

func TestAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		b, held, waiting := s.Backend(), request("k", time.Minute), request("k", time.Minute)
		held.OnLost = func(error) { t.Error("abandoning is not a loss") }
		must(b.TryAcquire(ctx, held))(t)
		ended := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, waiting)
			ended <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := b.Abandon(ctx, waiting); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-ended; err == nil {
			t.Fatal("an abandoned wait was granted")
		}
		for range 2 {
			if err := b.Abandon(ctx, held); err != nil {
				t.Fatal(err)
			}
		}
		wantEmpty(t, s)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), NewSpace()
		a, b := s.Backend(), s.Backend()
		g := must(a.TryAcquire(ctx, request("k", time.Minute)))(t)
		ended := make(chan error, 1)
		go func() {
			_, err := b.Acquire(ctx, request("k", time.Minute))
			ended <- err
		}()
		synctest.Wait()
		for range 2 {
			if err := b.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		wantErr(t, <-ended, backend.ErrClosed)
		if info := must(a.Inspect(ctx, "k"))(t); len(info.Waiters) != 0 {
			t.Fatalf("a closed Backend still waits: %+v", info)
		}
		_, err := b.TryAcquire(ctx, request("x", time.Minute))
		wantErr(t, err, backend.ErrClosed)
		_, err = b.Acquire(ctx, request("x", time.Minute))
		wantErr(t, err, backend.ErrClosed)
		wantErr(t, b.Ping(ctx), backend.ErrClosed)
		wantErr(t, b.List(ctx, nil), backend.ErrClosed)
		if err := g.Release(ctx); err != nil {
			t.Fatalf("the other session was disturbed: %v", err)
		}
	})
}

func TestPrefixAndList(t *testing.T) {
	ctx, s := t.Context(), NewSpace()
	plain, shop := s.Backend(), s.Backend(WithPrefix("shop"))
	var names []string
	for i := range 300 {
		name := fmt.Sprintf("n%03d", i)
		names = append(names, name)
		must(plain.TryAcquire(ctx, request(name, time.Minute)))(t)
		must(shop.TryAcquire(ctx, request(name, time.Minute)))(t)
	}
	must(plain.TryAcquire(ctx, request("only plain", time.Minute)))(t)
	var listed []string
	if err := shop.List(ctx, func(i backend.Info) bool {
		listed = append(listed, i.Name)
		must(shop.Break(ctx, i.Name, ""))(t) // yield may use the Backend
		return true
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	if !slices.Equal(listed, names) {
		t.Fatalf("listed %d names, want %d", len(listed), len(names))
	}
	n := 0
	if err := plain.List(ctx, func(backend.Info) bool { n++; return n < 5 }); err != nil || n != 5 {
		t.Fatalf("%d yielded after stop, error %v", n, err)
	}
}

func TestBadInput(t *testing.T) {
	b := New()
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.TryAcquire(dead, request("k", time.Minute)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := b.Acquire(dead, request("k", time.Minute)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, req := range []backend.Request{request("", time.Minute), request(string(make([]byte, 1025)), time.Minute), request("k", 0), request("k", -1)} {
		if _, err := b.TryAcquire(t.Context(), req); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%.10q, %v: %v", req.Key, req.TTL, err)
		}
	}
	wantEmpty(t, b.space)
}

func TestURL(t *testing.T) {
	open := func(s string) (backend.Backend, error) {
		u, err := backend.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		return backend.Open(t.Context(), u)
	}
	for _, bad := range []string{"mem:name", "mem://a,b", "mem://a/b", "mem://u:secret@a", "mem:?prefx=a", "mem:?prefix=a&prefix=b"} {
		if _, err := open(bad); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	get := func(s string) *Backend { return must(open(s))(t).(*Backend) }
	if get("mem://x").space != get("mem://x?prefix=p").space {
		t.Error("the same name gave two spaces")
	}
	x, y, private, private2 := get("mem://x"), get("mem://y"), get("mem:"), get("mem:")
	if x.space == y.space || private.space == private2.space {
		t.Error("two names share a space")
	}
	if p := get("mem:?prefix=p").prefix; p != "p" {
		t.Errorf("prefix %q", p)
	}
}
