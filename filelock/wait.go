package filelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	// afterEvent is the first pause after an event: the kernel reports the close of a
	// dying process's file a moment before it drops the flock.
	afterEvent = 50 * time.Microsecond
	// idle is the first pause without an event, and longest the longest, in case an event
	// is missed. Thousands of waiters look seldom.
	idle    = 5 * time.Second
	longest = time.Minute
)

// errGone: the ticket has been removed from the queue.
var errGone = errors.New("the place in the queue was deleted")

// errAbandoned ends a wait whose attempt another goroutine has abandoned.
var errAbandoned = errors.New("the attempt was abandoned while it waited")

// wait returns nil when t holds the lock. It returns the error of a look if no look has succeeded
// for retryFor.
func (b *Backend) wait(ctx context.Context, t *ticket, before uint64, retryFor time.Duration) error {
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	var (
		watched uint64       // the ticket that is watched
		pushed  bool         // whether the watch works
		unwatch = func() {}  // ends the watch
		pause   = idle       // between looks, where the watch works
		looked  = time.Now() // the last look that succeeded
		deep    = looked     // the last deep look, or the arrival
	)
	defer func() { unwatch() }()
	for {
		// The watch comes before the look, so no event is missed.
		if before != 0 && (before != watched || !pushed) {
			unwatch()
			watched = before
			path := t.path
			if before != anyTicket {
				path = ticketPath(t.path, before)
			}
			if unwatch, pushed = b.watch(path, wake); !pushed {
				unwatch = func() {}
			}
		}
		isDeep := time.Since(deep) >= idle
		if isDeep {
			deep = time.Now()
		}
		next, err := t.look(ctx, before, isDeep)
		select {
		case <-t.abandoned:
			return errAbandoned
		default:
		}
		switch {
		case errors.Is(err, errGone):
			return err
		case err == nil && next == 0:
			return nil
		case err == nil:
			looked = time.Now()
		case time.Since(looked) > retryFor:
			return err
		}
		if err == nil && next != before {
			before, pause = next, idle
			continue
		}
		timer := time.NewTimer(pause)
		if !pushed || err != nil {
			timer.Reset(20*time.Millisecond + rand.N(30*time.Millisecond))
		}
		select {
		case <-woken:
			pause = afterEvent
		case <-timer.C:
			pause = min(2*pause, longest)
		case <-t.abandoned:
		case <-ctx.Done():
		case <-b.done:
		}
		timer.Stop()
		if err := b.going(ctx); err != nil {
			return err
		}
	}
}

// look returns what t waits for, after it waited for before. It returns 0 if there is nothing:
// then t holds the lock. A deep look does not rely on the next waiter before t being awake.
func (t *ticket) look(ctx context.Context, before uint64, deep bool) (uint64, error) {
	d, err := t.b.open(t.path)
	var next uint64
	if err == nil {
		defer d.Close()
		switch {
		case t.share.Exclusive():
			next, err = d.predecessor(t.number, before)
		case t.share.Capacity == 0:
			next, err = d.lastExclusive(before)
		default:
			next, err = d.permitsBefore(t, before, deep)
		}
		if next != 0 && err == nil {
			return next, nil
		}
	}
	if t.share.Capacity > 0 && err == nil {
		return 0, t.claim(ctx)
	}
	// t itself must still be in the queue.
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone := t.verify(); errors.Is(gone, backend.ErrLost) {
		return 0, errGone
	} else if err == nil {
		err = gone
	}
	if err == nil && t.share.Exclusive() {
		d.setGranted(t.number)
	}
	return 0, err
}

// predecessor returns the ticket before, if it is alive, else the last live ticket before
// number, else 0.
func (d *directory) predecessor(number, before uint64) (uint64, error) {
	if before != 0 {
		if ok, err := d.alive(before); err != nil || ok {
			return before, err
		}
		// All tickets between before and number were dead when before was found, and all
		// below before were dead when it was granted. The dead stay dead.
		if d.counter().granted == before {
			return 0, nil
		}
	}
	ns, err := d.numbers()
	if err != nil {
		return 0, err
	}
	at, _ := slices.BinarySearch(ns, number)
	return d.lastAlive(ns[:at])
}
