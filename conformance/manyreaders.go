package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

const manyReadersClause = "The head of the queue is granted as soon as it fits, however many requests do. " +
	"A client renews and releases what it was granted, however much that is."

var manyReadersCases = []Case{
	{
		ID:     "shared/43-many-readers",
		Title:  "200 readers of one client that wait behind a writer are all granted, keep their leases, and unlock",
		Clause: manyReadersClause,
		needs:  []need{needShared, needQueue},
		alone:  true,
		run:    func(t *T) { manyReaders(t, 200) },
	},
	{
		ID:     "shared/43-ten-thousand-readers",
		Title:  "10,000 readers of one client that wait behind a writer are all granted, keep their leases, and unlock",
		Clause: manyReadersClause,
		needs:  []need{needShared, needQueue},
		alone:  true,
		long:   true,
		run:    func(t *T) { manyReaders(t, 10_000) },
	},
}

// manyReaders makes n readers of one client wait behind a writer, and releases them when the service would have ended a
// grant that was pushed and not renewed.
func manyReaders(t *T, n int) {
	limit := t.slack() + time.Duration(n)*5*time.Millisecond
	waits, late := make(chan struct{}, n), t.lateness()
	c := t.client(lock.WithTTL(t.clampTTL(10*time.Second)), lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) {
			select {
			case waits <- struct{}{}:
			default: // all have waited
			}
		},
	}))
	key := t.key("many-readers")
	writer := t.mustLock(t.client().Mutex(key), "a free key")
	m, got := c.RWMutex(key).RLocker(), make(chan locked, n)
	for range n {
		go func() {
			l, err := m.Lock(t.ctx)
			got <- locked{l, err, time.Now()}
		}()
	}
	deadline := time.After(limit)
	for i := range n {
		select {
		case <-waits:
		case r := <-got:
			t.fatalf("a reader behind a writer: want it to wait, got %s, %v", leaseText(r.lease), r.err)
		case <-deadline:
			t.fatalf("readers behind a writer: want %d that wait within %v, got %d", n, limit, i)
		}
	}
	t.mustUnlock(writer, "the writer")
	unlocked := time.Now()
	leases := make([]*lock.Lease, 0, n)
	for deadline = time.After(limit); len(leases) < n; {
		select {
		case r := <-got:
			if r.err != nil {
				t.fatalf("a reader, after %d of %d were granted: want a grant, got %v", len(leases), n, r.err)
			}
			leases = append(leases, r.lease)
		case <-deadline:
			t.fatalf("readers, after the writer has unlocked: want %d granted within %v, got %d", n, limit, len(leases))
		}
	}
	t.notef("%d readers were granted within %v", n, time.Since(unlocked).Round(time.Millisecond))
	if t.expires() {
		t.idleFor(backend.MaxProvisionalTTL + time.Second)
	}
	var lost, failed failures
	for _, l := range leases {
		lost.add(l.Err())
	}
	var all sync.WaitGroup
	for _, l := range leases {
		all.Go(func() {
			if err := l.Unlock(t.ctx); !errors.Is(err, lock.ErrUncertain) { // else it goes on in the background
				failed.add(err)
			}
		})
	}
	t.within(limit, fmt.Sprintf("Unlock of %d readers", n), all.Wait)
	if stood := late(); lost.n+failed.n > 0 && stood > backend.MaxProvisionalTTL/4 {
		t.again("%d leases lost and %d unlocks failed on a machine that stood still for %v", lost.n, failed.n, stood)
	}
	if lost.n > 0 {
		t.errorf("readers: want %d leases held, %d are lost, the first with: %v", n, lost.n, lost.first)
	}
	if failed.n > 0 {
		t.errorf("readers: want %d unlocks that return nil or go on in the background, %d failed, the first with: %v", n, failed.n, failed.first)
	}
	t.free(t.client(), key, "after many readers", limit)
}

// failures counts errors and keeps the first.
type failures struct {
	mu    sync.Mutex
	n     int
	first error
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n == 1 {
		f.first = err
	}
}
