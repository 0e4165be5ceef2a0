package lock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// inBatch makes a client of a backend whose renewals are held up until release, or
// until their context ends: some alone, a batch, and two in the queue.
func inBatch(t *testing.T) (b *batcher, c *lock.Client, batched, queued []*lock.Lease, release func()) {
	t.Helper()
	b = &batcher{fake: newFake()}
	gate := make(chan struct{})
	b.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
		if op == "renew" || op == "batch" {
			select {
			case <-gate:
			case <-ctx.Done():
				return backend.Uncertain(ctx.Err()), false
			}
		}
		return nil, true
	}
	c = newClient(t, b, lock.WithTTL(ttl))
	held := lockMany(t, c, lock.DirectAtMost+lock.BatchAtMost+2)
	time.Sleep((ttl-lock.Margin(ttl))/3 + time.Millisecond)
	if n := b.count("batch"); n != 1 || b.count("renew") != lock.DirectAtMost {
		t.Fatalf("%d batches and %d renewals alone", n, b.count("renew"))
	}
	where := map[string]string{} // which is where is the scheduler's choice
	for _, name := range b.lastBatch() {
		where[name] = "batch"
	}
	b.fake.mu.Lock()
	for _, name := range b.names {
		where[name] = "alone"
	}
	b.fake.mu.Unlock()
	for _, l := range held {
		switch where[l.Name()] {
		case "batch":
			batched = append(batched, l)
		case "":
			queued = append(queued, l)
		}
	}
	if len(batched) != lock.BatchAtMost || len(queued) != 2 {
		t.Fatalf("%d in the batch and %d in the queue", len(batched), len(queued))
	}
	return b, c, batched, queued, func() { close(gate) }
}

func TestUnlockDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, batched, queued, release := inBatch(t)
		start := time.Now()
		for _, l := range []*lock.Lease{batched[0], queued[0]} {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if b.holder(l.Name()) != "" {
				t.Fatalf("%s is not free", l.Name())
			}
		}
		if d := time.Since(start); d != 0 {
			t.Fatalf("unlocking took %v", d)
		}
		again := mustLock(t, newClient(t, b, lock.WithTTL(time.Hour)).Mutex(batched[0].Name()))
		release()
		synctest.Wait()
		wantErr(t, "an unlocked lease whose batch was answered", batched[0].Err(), lock.ErrReleased)
		wantHeld(t, again)
		if names := b.lastBatch(); len(names) != 1 || names[0] != queued[1].Name() {
			t.Fatalf("%v in the second batch, want the other one that had queued", names)
		}
		time.Sleep(ttl)
		wantHeld(t, batched[1:]...)
		wantHeld(t, queued[1:]...)
	})
}

func TestCloseDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c, batched, queued, _ := inBatch(t)
		start := time.Now()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 0 {
			t.Fatalf("closing took %v though every request obeys its context", d)
		}
		for _, l := range append(batched, queued...) {
			wantErr(t, "Err", l.Err(), lock.ErrClosed)
			if b.holder(l.Name()) != "" {
				t.Fatalf("%s is not free", l.Name())
			}
		}
	})
}

func TestBatchAnsweredAfterTheEndRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		b.spoil = func(_ context.Context, op string, _ int) (error, bool) {
			if op == "renew" || op == "batch" {
				time.Sleep(ttl - ttl/3 - lock.Margin(ttl)/2) // answered when the trust is over and the lock still held
			}
			return nil, true
		}
		start := time.Now()
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), 300)
		for _, l := range held {
			if got, want := lostAfter(t, l, start), ttl-lock.Margin(ttl); got != want {
				t.Fatalf("%s was lost after %v, want %v", l.Name(), got, want)
			}
		}
		time.Sleep(10 * ttl)
		for _, l := range held {
			wantErr(t, "after its batch was answered", l.Err(), lock.ErrLost)
			if b.holder(l.Name()) != "" {
				t.Fatalf("%s is still held at the service", l.Name())
			}
		}
	})
}

// A renewal that gives up returns at once and does not end the others of its batch. The last
// one ends the request.
func TestMembersGiveUpABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		ended := 0
		b.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			if op == "batch" || op == "renew" {
				<-ctx.Done()
				if op == "batch" {
					ended++
				}
				return backend.Uncertain(ctx.Err()), false
			}
			return nil, true
		}
		c := newClient(t, b, lock.WithTTL(10*time.Minute))
		held := lockMany(t, c, lock.DirectAtMost+lock.BatchAtMost)
		patient, cancel := context.WithCancel(t.Context())
		hasty, cancelHasty := context.WithTimeout(t.Context(), time.Second)
		defer cancelHasty()
		checked := make(chan error, len(held))
		check := func(l *lock.Lease, ctx context.Context) { checked <- l.Check(ctx) }
		for _, l := range held[:lock.DirectAtMost] {
			go check(l, patient)
		}
		synctest.Wait()
		for i, l := range held[lock.DirectAtMost:] {
			if i < 10 {
				go check(l, hasty)
			} else {
				go check(l, patient)
			}
		}
		synctest.Wait()
		if n := b.count("batch"); n != 1 {
			t.Fatalf("%d batches", n)
		}
		for range 10 {
			err := <-checked
			wantErr(t, "Check that gave up", err, context.DeadlineExceeded)
			wantErr(t, "Check that gave up", err, lock.ErrUncertain)
		}
		time.Sleep(time.Second)
		if len(checked) != 0 || ended != 0 {
			t.Fatal("those that gave up took others with them")
		}
		cancel()
		synctest.Wait()
		if ended != 1 || len(checked) != len(held)-10 {
			t.Fatalf("of %d others %d have returned; the batch has not ended though no renewal waits for it", len(held)-10, len(checked))
		}
		wantHeld(t, held...)
	})
}

// Whatever the service takes for each request, no renewal is left in the queue.
func TestNoRenewalIsForgotten(t *testing.T) {
	for _, most := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := &batcher{fake: newFake()}
			b.spoil = func(ctx context.Context, op string, n int) (error, bool) {
				return slow(rand.N(most))(ctx, op, n)
			}
			c := newClient(t, b, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
				RenewFailed: func(_ context.Context, e lock.Event) { t.Errorf("%v at most: %v", most, e.Err) },
			}))
			var held []*lock.Lease
			for i := range 300 {
				held = append(held, mustLock(t, c.Mutex(fmt.Sprint("k", i))))
				if i%10 == 0 {
					time.Sleep(rand.N(10 * time.Millisecond))
				}
			}
			time.Sleep(6 * ttl)
			wantHeld(t, held...)
			if b.count("batch") == 0 {
				t.Errorf("%v at most: no batch", most)
			}
		})
	}
}
