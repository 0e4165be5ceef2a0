package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// Times of the messages about a wait.
const (
	firstNotice    = time.Second
	noticeInterval = time.Minute
)

// waitNotice shows the holder during a wait.
type waitNotice struct {
	app   *App
	name  string
	shown bool // during this wait

	mu      sync.Mutex        // guards the fields below
	locked  *lock.LockedError // the holder when the wait began
	current int               // index of the client that waits
}

func (a *App) newWaitNotice(name string) *waitNotice { return &waitNotice{app: a, name: name} }

// observer returns the observer of client i.
func (n *waitNotice) observer(i int) *lock.Observer {
	return &lock.Observer{Waiting: func(_ context.Context, e lock.Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		errors.As(e.Err, &n.locked)
		n.current = i
	}}
}

// start begins to watch a wait. The returned function ends that; its argument is the
// lease, nil if the wait failed.
func (n *waitNotice) start(ctx context.Context, cs []*lock.Client) func(*lock.Lease) {
	began := time.Now()
	n.shown = false
	ctx, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		timer := time.NewTimer(firstNotice)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			n.show(ctx, cs, time.Since(began))
			timer.Reset(noticeInterval)
		}
	})
	return func(l *lock.Lease) {
		cancel()
		watcher.Wait()
		if l == nil || !n.shown {
			return
		}
		took := time.Since(began)
		token, _ := l.Token() // zero during a migration
		text := fmt.Sprintf("acquired %q after %s", n.name, round(took))
		if token != 0 {
			text += fmt.Sprintf(", token %d", token)
		}
		n.app.Notice("acquired", text, map[string]any{"name": n.name, "waited_ns": took, "token": token})
	}
}

// show writes who holds the lock now, as far as the service says.
func (n *waitNotice) show(ctx context.Context, cs []*lock.Client, waited time.Duration) {
	n.mu.Lock()
	locked, c := n.locked, cs[n.current]
	n.mu.Unlock()
	inspecting, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := c.Inspect(inspecting, n.name)
	if ctx.Err() != nil {
		return // the wait is over, and info may be out of date
	}
	holder, text := info.Holder, ""
	switch {
	case err == nil && holder == nil:
		text = "the holder is changing"
	case holder != nil:
		text = "held by " + holderText(holder)
	case errors.Is(err, errors.ErrUnsupported) && locked != nil:
		holder = &locked.Holder
		text = "held by " + holderText(holder)
	default:
		text = fmt.Sprintf("no answer from %s", c.Capabilities().Name)
	}
	text = fmt.Sprintf("waiting for %q: %s", n.name, text)
	if n.shown {
		text = fmt.Sprintf("%s (for %s now)", text, round(waited))
	}
	n.shown = true
	n.app.Notice("waiting", text, map[string]any{"name": n.name, "waited_ns": waited, "holder": holder})
}
