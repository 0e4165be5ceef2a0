package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// batcher is a fake that renews many at once.
type batcher struct {
	*fake
	answer func(errs []error) []error // what it makes of the right answer, if set

	mu    sync.Mutex
	sizes []int             // of the batches, as they were sent
	last  []backend.Renewal // the last of them
}

// lastBatch returns the names in the last batch, as it was sent.
func (b *batcher) lastBatch() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.last {
		names = append(names, r.Grant.(*fakeGrant).req.Key)
	}
	return names
}

func (b *batcher) RenewBatch(ctx context.Context, all []backend.Renewal) []error {
	b.mu.Lock()
	b.sizes, b.last = append(b.sizes, len(all)), all
	b.mu.Unlock()
	errs := make([]error, len(all))
	sent := time.Now()
	if err := b.do(ctx, "batch", func() error {
		for i, r := range all {
			errs[i] = r.Grant.(*fakeGrant).extend(sent, r.TTL)
		}
		return nil
	}); err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	if b.answer != nil {
		errs = b.answer(errs)
	}
	return errs
}

// slow lets renewals and batches take d.
func slow(d time.Duration) func(context.Context, string, int) (error, bool) {
	return func(ctx context.Context, op string, _ int) (error, bool) {
		if op == "renew" || op == "batch" {
			select {
			case <-time.After(d):
			case <-ctx.Done():
				return backend.Uncertain(ctx.Err()), false
			}
		}
		return nil, true
	}
}

func lockMany(t *testing.T, c *lock.Client, n int) []*lock.Lease {
	t.Helper()
	held := make([]*lock.Lease, n)
	for i := range held {
		held[i] = mustLock(t, c.Mutex(fmt.Sprint("k", i)))
	}
	return held
}

func wantHeld(t *testing.T, held ...*lock.Lease) {
	t.Helper()
	for _, l := range held {
		if err := l.Err(); err != nil {
			t.Fatalf("%s: %v", l.Name(), err)
		}
	}
}

func TestFewRenewalsGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		b.spoil = slow(100 * time.Millisecond)
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), lock.DirectAtMost)
		time.Sleep(10 * ttl)
		wantHeld(t, held...)
		if n := b.count("batch"); n != 0 {
			t.Fatalf("%d leases were renewed in %d batches", len(held), n)
		}
	})
}

func TestManyRenewalsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		b := &batcher{fake: newFake()}
		b.spoil = slow(5 * time.Millisecond)
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), n)
		for round := 1; round <= 3; round++ { // of renewals
			time.Sleep(ttl / 3)
			wantHeld(t, held...)
			if most, sent := round*2*n/lock.BatchAtMost, b.count("renew")+b.count("batch"); sent > most {
				t.Fatalf("%d requests in %d rounds of renewals of %d leases, want at most %d", sent, round, n, most)
			}
		}
		if largest := slices.Max(b.sizes); largest > lock.BatchAtMost {
			t.Fatalf("a batch of %d", largest)
		}
	})
}

// Renewals at a distant service wait for batches; few are sent by themselves.
func TestBatchesOfADistantService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2 * lock.BatchesAtMost * lock.BatchAtMost
		b := &batcher{fake: newFake()}
		b.spoil = slow(200 * time.Millisecond)
		held := lockMany(t, newClient(t, b, lock.WithTTL(3*ttl)), n)
		time.Sleep(3 * ttl / 2) // the first renewal, at which nothing was known of it
		before := b.count("renew")
		time.Sleep(3 * ttl)
		wantHeld(t, held...)
		if alone := b.count("renew") - before; alone > 12*lock.AloneAtMost {
			t.Fatalf("%d renewals went out alone in a TTL", alone)
		}
	})
}

// Trust counts from before the request, as the driver counts it: neither the way there nor
// the way back adds to it.
func TestTrustOfABatchIsCountedFromItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		const each = 30 * time.Millisecond
		b.spoil = slow(each)
		start := time.Now()
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), lock.DirectAtMost+10)
		time.Sleep(ttl / 2)
		due := (ttl - lock.Margin(ttl)) / 3
		batch := b.lastBatch()
		for _, l := range held {
			want := due + ttl - lock.Margin(ttl)
			if slices.Contains(batch, l.Name()) {
				want += each // the batch was sent when the first of the others had its reply
			}
			if got := l.Expires().Sub(start); got != want {
				t.Fatalf("%s: trusted until %v after the start, want %v", l.Name(), got, want)
			}
		}
		if n := b.count("batch"); n != 1 {
			t.Fatalf("%d batches", n)
		}
	})
}

func TestLossInABatchConcernsOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		b.spoil = slow(time.Millisecond)
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), 100)
		lost := 57
		b.take(held[lost].Name(), "other", time.Hour)
		time.Sleep(ttl / 2)
		wantErr(t, "the lost one", held[lost].Err(), lock.ErrLost)
		time.Sleep(2 * ttl)
		if b.count("batch") == 0 {
			t.Fatal("no batch")
		}
		for i, l := range held {
			if i != lost {
				wantHeld(t, l)
			}
		}
		wantErr(t, "Unlock", held[lost].Unlock(t.Context()), lock.ErrLost)
		if b.holder(held[lost].Name()) != "other" {
			t.Fatal("the successor's hold was touched")
		}
	})
}

// Batches that hang delay other renewals by MaxQueueWait, and cost no lease.
func TestHungBatchesDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		alone := slow(time.Millisecond)
		b.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if op == "batch" {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			return alone(ctx, op, n)
		}
		c := newClient(t, b, lock.WithTTL(ttl))
		held := lockMany(t, c, lock.BatchesAtMost*lock.BatchAtMost+200)
		due := (ttl - lock.Margin(ttl)) / 3
		delay := lock.MaxQueueWait(ttl / 4) // a renewal has a quarter of the TTL
		var later []*lock.Lease
		time.Sleep(10 * time.Millisecond)
		for i := range 20 {
			time.Sleep(10 * time.Millisecond)
			later = append(later, mustLock(t, c.Mutex(fmt.Sprint("later", i))))
		}
		start := time.Now()
		time.Sleep(due + delay + 2*time.Millisecond) // the last of them is due, and its wait is over
		for i, l := range later {
			acquired := start.Add(-time.Duration(len(later)-1-i) * 10 * time.Millisecond)
			if l.Expires().Sub(acquired) < due+ttl-lock.Margin(ttl) {
				t.Fatalf("lease %d was not renewed within %v of its time, while batches hang", i, delay)
			}
		}
		if n := b.count("batch"); n != lock.BatchesAtMost {
			t.Fatalf("%d batches", n)
		}
		time.Sleep(3 * ttl)
		wantHeld(t, held...)
		wantHeld(t, later...)
	})
}

// With a service that does not answer at all it is as without batches.
func TestManyLeasesOfADeadService(t *testing.T) {
	for name, spoil := range map[string]func(ctx context.Context) error{
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return backend.Uncertain(ctx.Err()) },
		"fails": func(context.Context) error { return errNet },
		"hangs and ignores the context": func(context.Context) error {
			time.Sleep(time.Hour)
			return errNet
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &batcher{fake: newFake()}
				b.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
					if op == "renew" || op == "batch" {
						return spoil(ctx), false
					}
					return nil, true
				}
				start := time.Now()
				held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), 3*lock.BatchAtMost)
				time.Sleep(ttl - lock.Margin(ttl) - 1)
				wantHeld(t, held...)
				for _, l := range held {
					if got, want := lostAfter(t, l, start), ttl-lock.Margin(ttl); got != want {
						t.Fatalf("%s was lost after %v, want %v", l.Name(), got, want)
					}
				}
				synctest.Wait()
				for _, l := range held {
					if b.holder(l.Name()) != "" {
						t.Fatalf("%s was not released", l.Name())
					}
				}
				time.Sleep(2 * time.Hour) // lets what ignores its context end
			})
		})
	}
}

// An outage that ends in time costs no lease.
func TestManyLeasesOutliveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		start := time.Now()
		works := slow(5 * time.Millisecond)
		b.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if at := time.Since(start) % (2 * ttl); at > ttl && at < ttl+ttl/2 && (op == "renew" || op == "batch") {
				<-ctx.Done()
				return backend.Uncertain(ctx.Err()), false
			}
			return works(ctx, op, n)
		}
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), 1000)
		time.Sleep(4 * ttl)
		wantHeld(t, held...)
	})
}

// A wrong answer of a driver, or a panic, blocks no renewal and costs no lease.
func TestBatchesOfABrokenDriver(t *testing.T) {
	for name, answer := range map[string]func([]error) []error{
		"none":       func([]error) []error { return nil },
		"too few":    func(errs []error) []error { return errs[1:] },
		"too many":   func(errs []error) []error { return append(errs, backend.ErrLost) },
		"a panic":    func([]error) []error { panic("a driver's") },
		"all failed": func(errs []error) []error { return slices.Repeat([]error{errNet}, len(errs)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &batcher{fake: newFake(), answer: answer}
				b.spoil = slow(time.Millisecond)
				failed := 0
				c := newClient(t, b, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
					RenewFailed: func(context.Context, lock.Event) { b.mu.Lock(); failed++; b.mu.Unlock() },
				}))
				held := lockMany(t, c, 300)
				time.Sleep(3 * ttl)
				wantHeld(t, held...)
				synctest.Wait()
				if failed == 0 {
					t.Fatal("no failed renewal was observed")
				}
			})
		})
	}
}

// A backend that cannot, as it is deployed, is asked no more.
func TestBatchesThatAreUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &batcher{fake: newFake()}
		b.answer = func(errs []error) []error {
			return slices.Repeat([]error{fmt.Errorf("a cluster: %w", errors.ErrUnsupported)}, len(errs))
		}
		alone := slow(20 * time.Millisecond)
		b.spoil = func(ctx context.Context, op string, n int) (error, bool) {
			if op == "batch" {
				return nil, false
			}
			return alone(ctx, op, n)
		}
		c := newClient(t, b, lock.WithTTL(ttl), lock.WithObserver(&lock.Observer{
			RenewFailed: func(_ context.Context, e lock.Event) { t.Errorf("a renewal failed: %v", e.Err) },
		}))
		start := time.Now()
		held := lockMany(t, c, 1000)
		time.Sleep(ttl / 2)
		for _, l := range held {
			if l.Expires().Sub(start) < ttl {
				t.Fatalf("%s was not renewed", l.Name())
			}
		}
		n := b.count("batch")
		time.Sleep(3 * ttl)
		wantHeld(t, held...)
		if b.count("batch") != n {
			t.Fatal("it was asked again")
		}
	})
}

// A service that does one thing after the other renews thousands of leases in batches, of which the last waits for longer
// than one renewal may take: single requests instead would take the time of the batches.
func TestManyLeasesOfABusyService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		b := &batcher{fake: newFake()}
		busy := make(chan struct{}, 1)
		b.spoil = func(ctx context.Context, op string, _ int) (error, bool) {
			took := map[string]time.Duration{"renew": 2 * time.Millisecond, "batch": ttl / 100}[op]
			if took == 0 {
				return nil, true
			}
			select {
			case busy <- struct{}{}:
			case <-ctx.Done():
				return backend.Uncertain(ctx.Err()), false
			}
			time.Sleep(took) // the service goes on if the client has left
			<-busy
			return nil, true
		}
		held := lockMany(t, newClient(t, b, lock.WithTTL(ttl)), n)
		for range 3 {
			time.Sleep(ttl)
			wantHeld(t, held...)
		}
	})
}
