package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// A wait is worth a word after the first, and then once in a while.
const (
	firstWord = time.Second
	nextWord  = time.Minute
)

// waitNotice tells the user whom a wait is for.
type waitNotice struct {
	a    *app
	name string

	mu     sync.Mutex
	locked *lock.LockedError // who held the lock when the wait began
	place  int               // which of the clients waits
	said   bool
}

func (a *app) newWaitNotice(name string) *waitNotice { return &waitNotice{a: a, name: name} }

// observer is for the client of one of the places.
func (n *waitNotice) observer(place int) *lock.Observer {
	return &lock.Observer{Waiting: func(_ context.Context, e lock.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		errors.As(e.Err, &n.locked)
		n.place = place
	}}
}

// start begins to watch a wait. The function it returns ends that, with the lease
// if there is one.
func (n *waitNotice) start(ctx context.Context, cs []*lock.Client) func(*lock.Lease) {
	began := time.Now()
	n.said = false
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		pause := time.NewTimer(firstWord)
		defer pause.Stop()
		for {
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			n.tell(ctx, cs, time.Since(began))
			pause.Reset(nextWord)
		}
	})
	return func(l *lock.Lease) {
		cancel()
		watching.Wait()
		if l == nil || !n.said {
			return
		}
		took := time.Since(began)
		token, _ := l.Token() // zero during a migration
		text := fmt.Sprintf("acquired %q after %s", n.name, round(took))
		if token != 0 {
			text += fmt.Sprintf(", token %d", token)
		}
		n.a.notice("acquired", text, map[string]any{"name": n.name, "waited_ns": took, "token": token})
	}
}

// tell says who holds the lock now, as far as that can be known.
func (n *waitNotice) tell(ctx context.Context, cs []*lock.Client, waited time.Duration) {
	n.mu.Lock()
	locked, c := n.locked, cs[n.place]
	n.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := c.Inspect(asking, n.name)
	if ctx.Err() != nil {
		return // the wait is over: whoever held the lock does not any more
	}
	holder, text := info.Holder, ""
	switch {
	case err == nil && holder == nil:
		text = "changing hands"
	case holder != nil:
		text = "held by " + holderText(holder)
	case errors.Is(err, errors.ErrUnsupported) && locked != nil:
		holder = &locked.Holder
		text = "held by " + holderText(holder)
	default:
		text = fmt.Sprintf("no answer from %s", c.Capabilities().Name)
	}
	text = fmt.Sprintf("waiting for %q: %s", n.name, text)
	if n.said {
		text = fmt.Sprintf("%s (for %s now)", text, round(waited))
	}
	n.said = true
	n.a.notice("waiting", text, map[string]any{"name": n.name, "waited_ns": waited, "holder": holder})
}
