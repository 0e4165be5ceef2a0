package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
)

var lifecycleCases = []Case{
	{
		ID:     "lifecycle/37-close-releases",
		Title:  "closing a client frees what it holds and ends its leases with ErrClosed",
		Clause: "Close frees what is held before it returns.",
		run:    closeReleases,
	},
	{
		ID:     "lifecycle/37-close-ends-waits",
		Title:  "closing a client ends its waits with ErrClosed, and they leave no place in the queue",
		Clause: "Close ends all waits with ErrClosed.",
		run:    closeEndsWaits,
	},
	{
		ID:     "lifecycle/37-close-leaves-no-goroutine",
		Title:  "closing a client leaves no goroutine",
		Clause: "Close frees what the driver itself opened.",
		alone:  true,
		run:    closeLeavesNoGoroutine,
	},
	{
		ID:     "lifecycle/37-use-after-close",
		Title:  "a closed client returns ErrClosed; closing it twice changes nothing",
		Clause: "Use after Close is ErrClosed.",
		run:    useAfterClose,
	},
	{
		ID:     "lifecycle/37-survives-restart",
		Title:  "a client works again after a restart of the service without being opened again",
		Clause: "A driver reconnects by itself.",
		needs:  []need{needRestart},
		alone:  true,
		run:    survivesRestart,
	},
	{
		ID:     "lifecycle/38-hundreds-of-keys",
		Title:  "one client holds and renews hundreds of keys at once",
		Clause: "Leases of one client do not affect each other.",
		alone:  true,
		run:    hundredsOfKeys,
	},
}

// ownClient returns a client that the case itself closes.
func (t *T) ownClient(opts ...lock.Option) (*lock.Client, func()) {
	c := t.client(opts...)
	return c, func() {
		t.within(2*t.slack(), "Close", func() {
			if err := c.Close(t.ctx); err != nil {
				t.errorf("Close: want nil, got %v", err)
			}
		})
	}
}

func closeReleases(t *T) {
	c, close := t.ownClient()
	other := t.client()
	var leases []*lock.Lease
	for range 20 {
		leases = append(leases, t.mustLock(c.Mutex(t.key("close")), "a free key"))
	}
	close()
	for _, l := range leases {
		select {
		case <-l.Done():
		default:
			t.errorf("a lease of a closed client: want it ended, it is not")
		}
		if !errors.Is(l.Err(), lock.ErrClosed) {
			t.errorf("a lease of a closed client: want ErrClosed, got %v", l.Err())
		}
		t.free(other, l.Name(), fmt.Sprintf("after its holder's client was closed (TTL %v)", t.longTTL()), t.slack())
	}
}

func closeEndsWaits(t *T) {
	key := t.key("close-wait")
	other := t.client()
	l := t.mustLock(other.Mutex(key), "a free key")
	w := t.waiter()
	var ends []<-chan locked
	for range 5 {
		ends = append(ends, t.lockWaiting(t.ctx, w, key))
	}
	t.within(2*t.slack(), "Close while Locks wait", func() {
		if err := w.c.Close(t.ctx); err != nil {
			t.errorf("Close while Locks wait: want nil, got %v", err)
		}
	})
	for _, end := range ends {
		if got := t.end(t.slack(), "a wait of a closed client", end); !errors.Is(got.err, lock.ErrClosed) {
			t.errorf("a wait of a closed client: want ErrClosed, got %v", got.err)
		}
	}
	t.mustUnlock(l, "the holder")
	t.free(other, key, "after a client with waits was closed", t.slack())
}

func closeLeavesNoGoroutine(t *T) {
	use := func() {
		c, close := t.ownClient(lock.WithTTL(t.ttl()))
		for range 10 {
			t.mustLock(c.Mutex(t.key("goroutine")), "a free key")
		}
		key := t.key("goroutine-wait")
		t.mustUnlock(t.mustLock(c.Mutex(key), "a free key"), "the holder")
		close()
	}
	use()
	t.idleFor(20 * time.Millisecond)
	before := t.goroutines() + others
	for range 10 {
		use()
	}
	t.goroutinesBack(before, "goroutines after 10 clients were opened, used and closed")
}

func useAfterClose(t *T) {
	c, close := t.ownClient()
	key := t.key("closed")
	l := t.mustLock(c.Mutex(key), "a free key")
	released := t.mustLock(c.Mutex(t.key("released")), "a free key")
	t.mustUnlock(released, "the holder")
	close()
	close()
	ctx, cancel := context.WithTimeout(t.ctx, t.slack())
	defer cancel()
	for name, call := range map[string]func() error{
		"Lock":           func() error { _, err := c.Mutex(key).Lock(ctx); return err },
		"TryLock":        func() error { _, err := c.Mutex(key).TryLock(ctx); return err },
		"Unlock":         func() error { return l.Unlock(ctx) },
		"Check":          func() error { return l.Check(ctx) },
		"Extend":         func() error { return l.Extend(ctx, t.longTTL()) },
		"Inspect":        func() error { _, err := c.Inspect(ctx, key); return err },
		"Break":          func() error { _, err := c.Break(ctx, key); return err },
		"Ping":           func() error { return c.Ping(ctx) },
		"List":           func() error { return firstError(ctx, c) },
		"Err of a lease": l.Err,
	} {
		t.within(2*t.slack(), name+" after Close", func() {
			if err := call(); !errors.Is(err, lock.ErrClosed) {
				t.errorf("%s after Close: want ErrClosed, got %v", name, err)
			}
		})
	}
	if err := released.Err(); !errors.Is(err, lock.ErrReleased) {
		t.errorf("Err of a lease that was released before Close: want ErrReleased, got %v", err)
	}
	t.free(t.client(), key, "after Close", t.slack())
}

func firstError(ctx context.Context, c *lock.Client) error {
	for _, err := range c.List(ctx) {
		return err
	}
	return nil
}

func survivesRestart(t *T) {
	ttl := t.clampTTL(5 * time.Second)
	c, w := t.client(lock.WithTTL(ttl)), t.waiter(lock.WithTTL(ttl))
	for range 2 {
		t.restart()
		key := t.key("after-restart")
		l := t.granted(reconnects+t.slack(), "a client after a restart of the service", t.lockRetry(c.Mutex(key))).lease
		// Both ways to a grant work again: the direct one and the hand-off.
		t.eventually(reconnects+t.slack(), "another client after a restart of the service", func() error {
			if _, err := w.c.Mutex(key).TryLock(t.ctx); !errors.Is(err, lock.ErrLocked) {
				return fmt.Errorf("want ErrLocked, got %w", err)
			}
			return nil
		})
		got := t.lockWaiting(t.ctx, w, key)
		t.mustUnlock(l, "the holder")
		t.mustUnlock(t.granted(ttl+t.slack(), "the waiter", got).lease, "the waiter")
	}
}

// timeFor is how long the service takes for n changes, one after the other, at the moment.
func (t *T) timeFor(n int) time.Duration {
	const sample = 10
	c := t.client()
	start := time.Now()
	for range sample {
		t.mustLock(c.Mutex(t.key("pace")), "a free key")
	}
	return time.Since(start) / sample * time.Duration(n)
}

func hundredsOfKeys(t *T) {
	n := t.rounds(200, 1000)
	ttl := max(t.lossTTL(), t.clampTTL(min(4*t.timeFor(n), 20*time.Second)))
	s, other := t.steady(ttl), t.client()
	keys := make([]string, n)
	leases := make([]*lock.Lease, n)
	start := time.Now()
	for i := range n {
		keys[i] = t.key("many")
		leases[i] = t.mustLock(s.c.Mutex(keys[i]), "a free key")
	}
	t.notef("%d keys taken in %v", n, time.Since(start))
	for end := time.Now().Add(ttl * 3 / 2); time.Now().Before(end); t.idleFor(ttl / 4) {
		for i, l := range leases {
			s.held(l, fmt.Sprintf("hold %d of %d, TTL %v", i, n, ttl))
		}
	}
	for i := 0; i < n; i += 7 {
		s.refused(leases[i], other.Mutex(keys[i]), "one of many held keys")
	}
	for i, l := range leases {
		s.unlock(l, fmt.Sprintf("hold %d of %d", i, n))
	}
	for i := 0; i < n; i += 7 {
		t.free(other, keys[i], "one of many released keys", t.slack())
	}
}
