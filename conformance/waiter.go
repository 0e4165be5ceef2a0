package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// waiter is a client that signals when one of its Locks begins to wait.
type waiter struct {
	c     *lock.Client
	waits chan struct{}
}

func (t *T) waiter(opts ...lock.Option) *waiter { return t.waiterOf(t.newBackend(), opts...) }

func (t *T) waiterOf(b backend.Backend, opts ...lock.Option) *waiter {
	w := &waiter{waits: make(chan struct{}, 1)}
	o := &lock.Observer{Waiting: func(context.Context, lock.Event) {
		select {
		case w.waits <- struct{}{}:
		default: // no case looks at it
		}
	}}
	w.c = t.clientOf(b, append([]lock.Option{lock.WithObserver(o)}, opts...)...)
	return w
}

// lockWaiting starts a Lock and returns when the observer of its client has reported
// that it waits for a holder.
func (t *T) lockWaiting(ctx context.Context, w *waiter, key string, opts ...lock.MutexOption) <-chan locked {
	return t.waiting(ctx, w, w.c.Mutex(key, opts...), "Lock")
}

// waiting starts a Lock of a mutex of w and returns when the observer of its client has
// reported that it waits.
func (t *T) waiting(ctx context.Context, w *waiter, m lock.Mutex, what string) <-chan locked {
	w.forget()
	out := t.lockAsync(ctx, m)
	select {
	case <-w.waits:
	case got := <-out:
		if late := time.Since(t.endOf(m.Name())); got.err == nil && late > 0 {
			t.again("%s of %q: it was granted %v after the holder's TTL, before it could wait", what, m.Name(), late)
		}
		if got.err == nil {
			t.fatalf("%s of %q, which is held: want it to wait, it was granted %s", what, m.Name(), leaseText(got.lease))
		}
		t.fatalf("%s of %q, which is held: want it to wait, got %v", what, m.Name(), got.err)
	case <-time.After(t.slack()):
		t.fatalf("%s of %q, which is held: want OnWait called within %v, it was not", what, m.Name(), t.slack())
	}
	return out
}

// forget drops the signal of an earlier Lock.
func (w *waiter) forget() {
	select {
	case <-w.waits:
	default:
	}
}

// answered ends the case, since nothing can be learned from the error of a Lock of a held key that had
// so much time, if the service did not answer it within that.
func (t *T) answered(w *waiter, limit time.Duration, err error) {
	select {
	case <-w.waits:
	default:
		t.again("Lock of a held key: no answer within its %v, got %v", limit, err)
	}
}

// observer returns an observer of a new client that records the time of each loss, and which
// of its Locks wait.
func (t *T) observer() *lock.Observer {
	waits := t.waits.client()
	ended := func(_ context.Context, e lock.Event) {
		if e.Waited {
			waits.end(e.Name)
		}
	}
	return &lock.Observer{
		Waiting:  func(_ context.Context, e lock.Event) { waits.begin(e) },
		Acquired: ended,
		Failed:   ended,
		Lost: func(_ context.Context, e lock.Event) {
			at := time.Now()
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.losses == nil {
				t.losses = map[string]time.Time{}
			}
			if t.losses[e.Name].IsZero() {
				t.losses[e.Name] = at
			}
		},
	}
}

// waits are the Locks of all clients of a case that wait.
type waits struct {
	mu      sync.Mutex
	clients []*clientWaits
}

// clientWaits are those of one client, by the name of the lock.
type clientWaits struct {
	all    *waits
	number int // of the client, from 1 in the order of opening
	begun  map[string][]wait
}

type wait struct {
	since  time.Time
	holder error
}

func (ws *waits) client() *clientWaits {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	c := &clientWaits{all: ws, number: len(ws.clients) + 1, begun: map[string][]wait{}}
	ws.clients = append(ws.clients, c)
	return c
}

func (c *clientWaits) begin(e lock.Event) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.begun[e.Name] = append(c.begun[e.Name], wait{time.Now(), e.Err})
}

// end takes one wait off the list; which one of several for the same lock does not matter.
func (c *clientWaits) end(name string) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if begun := c.begun[name]; len(begun) > 1 {
		c.begun[name] = begun[1:]
	} else {
		delete(c.begun, name)
	}
}

// text says which client waits for which lock, and what inspect returns for that; "" if none does.
func (ws *waits) text(inspect func(name string) string) string {
	ws.mu.Lock()
	lines := map[string][]string{} // by the name of the lock
	for _, c := range ws.clients {
		for name, begun := range c.begun {
			oldest := begun[0]
			lines[name] = append(lines[name], fmt.Sprintf("client %d has waited for %q for %v in %d Locks; when the first began to wait it was %v",
				c.number, name, time.Since(oldest.since).Round(time.Millisecond), len(begun), oldest.holder))
		}
	}
	ws.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		slices.Sort(lines[name])
		all = append(all, append(lines[name], inspect(name))...)
	}
	return strings.Join(all, "\n")
}

// inspectTime bounds the look at a lock for the text of a failure.
const inspectTime = 2 * time.Second

// inspected returns what a new client finds out about a lock, for the text of a failure.
func (t *T) inspected(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), inspectTime)
	defer cancel()
	b, err := t.h.Open(ctx)
	if err != nil {
		return fmt.Sprintf("a new client could not be opened: %v", err)
	}
	defer b.Close(ctx)
	i, ok := b.(backend.Inspector)
	if !ok {
		return "the backend cannot show the lock"
	}
	info, err := i.Inspect(ctx, name)
	switch {
	case err != nil:
		return fmt.Sprintf("the service shows nothing of %q: %v", name, err)
	case info.Holder == nil:
		return fmt.Sprintf("the service shows that %q is free, with %d waiters", name, len(info.Waiters))
	}
	return fmt.Sprintf("the service shows that %q is held by %s, token %d, with %d waiters",
		name, info.Holder.Owner, info.Holder.Token, len(info.Waiters))
}
