package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

func TestFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, queuetest.NewServer())
		for range 3 {
			g := p.lock(t, backend.Share{}, time.Second)
			if left := time.Until(g.Until()); left != ttl {
				t.Errorf("Until of a grant: want %v from now, got %v", ttl, left)
			}
			release(t, g)
		}
		if p.svc.counts().asked != 3 || p.svc.counts().ended != 3 || p.svc.counts().late != 0 {
			t.Errorf("3 locks of a free key: want 3 requests, and 3 to release, got %d, %d, of which %d refuse late ones",
				p.svc.counts().asked, p.svc.counts().ended, p.svc.counts().late)
		}
	})
}

// TestUntil: the lease is counted from before the request was sent.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, queuetest.NewServer())
		p.svc.SetFaults(queuetest.Faults{Delay: time.Second})
		sent := time.Now()
		g := p.lock(t, backend.Share{}, 2*time.Second)
		if want := sent.Add(ttl); !g.Until().Equal(want) {
			t.Errorf("Until of a grant whose request took a second: want %v after it was sent, got %v", ttl, g.Until().Sub(sent))
		}
		sent = time.Now()
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if want := sent.Add(ttl); !g.Until().Equal(want) {
			t.Errorf("Until after a renewal that took a second: want %v after it was sent, got %v", ttl, g.Until().Sub(sent))
		}
		release(t, g)
		sent = time.Now()
		g, err := p.TryAcquire(t.Context(), request(backend.Share{}))
		if err != nil {
			t.Fatal(err)
		}
		if want := sent.Add(ttl); !g.Until().Equal(want) {
			t.Errorf("Until of a grant of TryAcquire, which took a second: want %v after it was sent, got %v", ttl, g.Until().Sub(sent))
		}
		release(t, g)
	})
}

func TestHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b := start(t, s), start(t, s)
		g := a.lock(t, backend.Share{}, time.Second)
		for _, p := range []process{b, a, b, a} {
			before := p.svc.counts().asked
			next := p.waits(t, t.Context(), backend.Share{})
			token := g.Token()
			release(t, g)
			g = granted(t, next, time.Millisecond)
			if g.Token() <= token {
				t.Errorf("token of the next holder: want more than %d, got %d", token, g.Token())
			}
			if n := p.svc.counts().asked - before; n != 1 {
				t.Errorf("a waiter that is granted the key by an event: want 1 request, got %d", n)
			}
			if err := g.Renew(t.Context(), ttl); err != nil {
				t.Fatalf("Renew: %v", err)
			}
		}
	})
}

// TestLine makes many attempts of a process wait: they are granted in the order of the queue, with one request in
// flight.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		s := queuetest.NewServer()
		a, b := start(t, s), start(t, s)
		a.svc.SetFaults(queuetest.Faults{Delay: time.Millisecond})
		g := b.lock(t, backend.Share{}, time.Second)
		got := make(chan result, n)
		for range n {
			req := request(backend.Share{})
			go func() {
				g, err := a.Acquire(t.Context(), req)
				got <- result{req, g, err, 0}
			}()
		}
		time.Sleep(time.Second)
		if most := a.svc.counts().mostInFlight; most != 1 {
			t.Errorf("requests of %d attempts in flight at the same time: want 1, got %d", n, most)
		}
		release(t, g)
		last := uint64(0)
		for range n {
			g := granted(t, got, time.Second)
			if g.Token() <= last {
				t.Errorf("tokens: want them to rise, got %d after %d", g.Token(), last)
			}
			last = g.Token()
			release(t, g)
		}
		if all := a.svc.counts().asked; all != n {
			t.Errorf("%d attempts that wait and are granted the key by events: want a request each, got %d", n, all)
		}
	})
}

func TestReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		s := queuetest.NewServer()
		a, b := start(t, s), start(t, s)
		writer := b.lock(t, backend.Share{}, time.Second)
		got := make(chan result, n)
		for range n {
			go func() {
				g, err := a.Acquire(t.Context(), request(backend.Reader))
				got <- result{grant: g, err: err}
			}()
		}
		time.Sleep(time.Second)
		next := b.waits(t, t.Context(), backend.Share{})
		release(t, writer)
		for range n {
			g := granted(t, got, time.Millisecond)
			defer release(t, g)
			if err := g.Renew(t.Context(), ttl); err != nil {
				t.Fatalf("Renew of a reader: %v", err)
			}
		}
		select {
		case <-next:
			t.Fatal("a writer behind readers: want it to wait, it was granted the key")
		case <-time.After(time.Second):
		}
	})
}

// TestStoppedWaiters: a live waiter behind stopped ones is granted the key although the process that unlocked is gone.
func TestStoppedWaiters(t *testing.T) {
	for _, n := range []int{1, 2, 5, 10} {
		synctest.Test(t, func(t *testing.T) {
			s := queuetest.NewServer()
			holder, live := start(t, s), start(t, s)
			g := holder.lock(t, backend.Share{}, time.Second)
			for range n {
				p := start(t, s)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p.waits(t, ctx, backend.Share{})
				p.stop()
			}
			next := live.waits(t, t.Context(), backend.Share{})
			release(t, g)
			_ = holder.Close(t.Context())
			release(t, granted(t, next, behindStopped(n)+100*time.Millisecond))
		})
	}
}

// behindStopped is how long n stopped processes delay the waiter behind them.
func behindStopped(n int) time.Duration {
	return queue.ProvisionalTTL + time.Duration(n-1)*queue.ShortProvisionalTTL
}

// TestStoppedWriter: a stopped writer at the head of the queue keeps out those that only try for ProvisionalTTL.
func TestStoppedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, stopped := start(t, s), start(t, s)
		reader := a.lock(t, backend.Reader, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped.waits(t, ctx, backend.Share{})
		stopped.stop()
		begun := time.Now()
		for {
			g, err := a.TryAcquire(t.Context(), request(backend.Reader))
			if err == nil {
				release(t, g)
				break
			}
			if !errors.Is(err, backend.ErrLocked) || time.Since(begun) > queue.ProvisionalTTL+200*time.Millisecond {
				t.Fatalf("a reader that tries, %v behind a stopped writer: %v", time.Since(begun), err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		release(t, reader)
	})
}

// TestReleaserCloses: when a process has passed the key to a stopped one and is closed, the others get to know when that
// grant ends, also those that were informed of no other one.
func TestReleaserCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		first, second, closing, stopped, live := start(t, s), start(t, s), start(t, s), start(t, s), start(t, s)
		g := first.lock(t, backend.Share{}, time.Second)
		got, then := second.waits(t, t.Context(), backend.Share{}), closing.waits(t, t.Context(), backend.Share{})
		release(t, g) // of that grant closing is informed: the next time that more than one is informed is in a second
		g = granted(t, got, time.Second)
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		stopped.waits(t, t.Context(), backend.Share{})
		next := live.waits(t, t.Context(), backend.Share{})
		stopped.stop()
		release(t, g)
		first.stop() // else these two look when the grants that they have passed on end
		second.stop()
		release(t, granted(t, then, time.Second))
		if err := closing.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, granted(t, next, behindStopped(1)+100*time.Millisecond))
	})
}

// TestBehindStoppedWaiters: a waiter that gets no event, because more than Informed stopped ones are before it, is granted
// the key because the process that has unlocked looks whether they claim it.
func TestBehindStoppedWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		holder, live := start(t, s), start(t, s)
		g := holder.lock(t, backend.Share{}, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range queue.Informed + 1 {
			p := start(t, s)
			p.waits(t, ctx, backend.Share{})
			p.stop()
		}
		next := live.waits(t, t.Context(), backend.Share{})
		release(t, g)
		release(t, granted(t, next, behindStopped(queue.Informed+1)+100*time.Millisecond))
	})
}

// TestReadersBehindStoppedWriter: readers that wait behind a stopped writer are admitted after ProvisionalTTL.
func TestReadersBehindStoppedWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b, stopped := start(t, s), start(t, s), start(t, s)
		reader := a.lock(t, backend.Reader, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped.waits(t, ctx, backend.Share{})
		stopped.stop()
		release(t, granted(t, b.waits(t, t.Context(), backend.Reader), queue.ProvisionalTTL+200*time.Millisecond))
		release(t, reader)
	})
}

// TestDeadHolder: a waiter is granted the key when the lease of a stopped holder ends, and asks rarely before.
func TestDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		holder, waiter := start(t, s), start(t, s)
		holder.lock(t, backend.Share{}, time.Second)
		holder.stop()
		next := waiter.waits(t, t.Context(), backend.Share{})
		release(t, granted(t, next, ttl+10*time.Millisecond))
		if n := waiter.svc.counts().asked; n > 2 {
			t.Errorf("a waiter for a whole lease: want 2 requests, got %d", n)
		}
	})
}

// TestPolling: without events waiters ask at intervals.
func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		svc := &counted{Service: s.Process()}
		polling := process{queue.New(svc), svc}
		defer func() { _ = polling.Close(t.Context()) }()
		other := start(t, s)
		g := other.lock(t, backend.Share{}, time.Second)
		one, two := polling.waits(t, t.Context(), backend.Reader), polling.waits(t, t.Context(), backend.Reader)
		time.Sleep(10 * time.Second)
		if n := svc.counts().asked; n > 60 {
			t.Errorf("two waiters that poll for 10s: want at most 60 requests, got %d", n)
		}
		release(t, g)
		release(t, granted(t, one, time.Second))
		release(t, granted(t, two, time.Second))
	})
}

// TestRemoved: the attempts of a process that has not got its grant, and so was taken for dead, enter the queue again at
// once.
func TestRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b, c := start(t, s), start(t, s), start(t, s)
		g := b.lock(t, backend.Share{}, time.Second)
		first, second := a.waits(t, t.Context(), backend.Share{}), a.waits(t, t.Context(), backend.Share{})
		next := c.waits(t, t.Context(), backend.Share{})
		a.svc.SetFaults(queuetest.Faults{LoseEvents: true})
		release(t, g)
		time.Sleep(time.Second)
		a.svc.SetFaults(queuetest.Faults{})
		g = granted(t, next, queue.ProvisionalTTL)
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for range 2 {
			release(t, g)
			select {
			case r := <-first:
				g = r.grant
			case r := <-second:
				g = r.grant
			case <-time.After(time.Second):
				t.Fatal("the attempts have not entered the queue again")
			}
		}
	})
}
