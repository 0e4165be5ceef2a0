package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// watchChanges looks at a key only after a notification.
func watchChanges(t *T) {
	key, c := t.key("changes"), t.client()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	watcher := t.open().(backend.ChangeWatcher)
	go func() {
		ended <- watcher.WatchChanges(ctx, key, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	notified := func(of string, seen func(lock.Info) bool) {
		late := time.After(t.slack() + t.ttl())
		for {
			select {
			case <-changed:
				info, err := c.Inspect(t.ctx, key)
				if err != nil {
					t.fatalf("Inspect after a notification of %s: want the holder, got %v", of, err)
				}
				if seen(info) {
					return
				}
			case err := <-ended:
				t.fatalf("WatchChanges before %s: want it to watch until its context ends, got %v", of, err)
			case <-late:
				t.fatalf("%s: want a notification within %v, after which Inspect shows it, got none", of, t.slack())
			}
		}
	}
	free := func(i lock.Info) bool { return i.Holder == nil }
	held := func(i lock.Info) bool { return i.Holder != nil && len(i.Waiters) == 0 }

	notified("the beginning of the watch", free)
	l := t.mustLock(t.client().Mutex(key, lock.WithMetadata("first")), "a free key")
	notified("a grant", held)
	if _, ok := t.probe.(backend.Waiter); ok {
		next := t.lockWaiting(t.ctx, t.waiter(), key, lock.WithMetadata("second"))
		if t.caps.Order == backend.FIFO { // without a queue at the service Inspect shows no waiters
			notified("a waiter", func(i lock.Info) bool { return len(i.Waiters) == 1 })
		}
		t.mustUnlock(l, "the holder")
		l = t.granted(t.slack(), "the waiter", next).lease
		notified("a hand-over", func(i lock.Info) bool { return held(i) && i.Holder.Metadata == "second" })
	}
	t.mustUnlock(l, "the holder")
	notified("a release", free)
	if t.caps.Loss == backend.LossTTL {
		t.holdRaw(t.open(), key, t.ttl())
		notified("a grant", held)
		notified("an expiry", free)
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.errorf("WatchChanges whose context has ended: want context.Canceled, got %v", err)
		}
	case <-time.After(t.slack()):
		t.errorf("WatchChanges whose context has ended: want it to return within %v, it did not", t.slack())
	}
}
