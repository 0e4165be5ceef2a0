package filelock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// lastAlive returns the position of the last live ticket, -1 if there is none.
func lastAlive(dir string, ns []uint64) (int, error) {
	for i, n := range slices.Backward(ns) {
		if ok, err := alive(ticketPath(dir, n)); ok || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// errGone: the ticket has been removed from the queue.
var errGone = errors.New("the place in the queue was deleted")

// errAbandoned ends a wait whose attempt another goroutine has abandoned.
var errAbandoned = errors.New("the attempt was abandoned while it waited")

// wait returns nil when no live ticket is left before t. It returns the error of a look if
// no look has succeeded for retryFor.
func (b *Backend) wait(ctx context.Context, t *ticket, before uint64, retryFor time.Duration) error {
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	var (
		watched uint64 // the ticket that is watched
		pushed  bool   // whether the watch works
		unwatch func()
		pace    pace
		looked  = time.Now()
	)
	stop := func() {
		if unwatch != nil {
			unwatch()
			unwatch = nil
		}
	}
	defer stop()
	for {
		// The watch comes before the look, so no event is missed.
		if before != 0 && (before != watched || !pushed) {
			stop()
			watched = before
			unwatch, pushed = b.watch(ticketPath(t.dir, before), wake)
		}
		next, err := t.look(before)
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
			before = next
			pace.reset()
			continue
		}
		timer := time.NewTimer(pace.next(pushed && err == nil))
		select {
		case <-woken:
			pace.hurry()
		case <-timer.C:
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

// look returns the live ticket that t waits for. It returns 0 if there is none: then t
// holds the lock.
func (t *ticket) look(before uint64) (uint64, error) {
	if before != 0 {
		if ok, err := alive(ticketPath(t.dir, before)); err != nil || ok {
			return before, err
		}
	}
	ns, err := numbers(t.dir)
	if err != nil {
		if gone := t.gone(); gone != nil {
			return 0, gone
		}
		return 0, err
	}
	at, _ := slices.BinarySearch(ns, t.number)
	i, err := lastAlive(t.dir, ns[:at])
	if err != nil {
		return 0, err
	}
	if err := t.gone(); err != nil {
		return 0, err
	}
	if i < 0 {
		return 0, nil
	}
	return ns[i], nil
}

// gone returns errGone if the file of t is no longer in its place.
func (t *ticket) gone() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.verify()
	if errors.Is(err, backend.ErrLost) {
		return errGone
	}
	return err
}

// pace is the interval of a waiter's looks between events.
type pace struct{ pause time.Duration }

const (
	// hurried is the first pause after an event: the kernel reports the close of a
	// dying process's file a moment before it drops the flock.
	hurried = 50 * time.Microsecond
	// idle is the longest pause, in case an event is missed.
	idle = 5 * time.Second
)

func (p *pace) reset() { p.pause = 0 }
func (p *pace) hurry() { p.pause = hurried }

func (p *pace) next(pushed bool) time.Duration {
	if !pushed {
		return 20*time.Millisecond + rand.N(30*time.Millisecond)
	}
	if p.pause == 0 {
		return idle
	}
	pause := p.pause
	p.pause = min(2*p.pause, idle)
	return pause
}
