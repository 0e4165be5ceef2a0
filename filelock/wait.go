package filelock

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	// afterEvent is the first pause after an event: the kernel reports the close of a dying process's file a moment
	// before it drops the flock.
	afterEvent = 50 * time.Microsecond
	// idle is the first pause without an event, and longest the longest, in case an event is missed. Thousands of
	// waiters look seldom.
	idle    = 5 * time.Second
	longest = time.Minute
)

var errAbandoned = errors.New("the attempt was abandoned while it waited")

// wait returns nil when t holds the lock, and ErrLost when its ticket was deleted. It returns the error of a look if no
// look has succeeded for retryFor.
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
		if before != watched || !pushed {
			unwatch()
			path := t.path
			if watched = before; before != anyTicket {
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
		switch {
		case t.abandoned.Err() != nil:
			return errAbandoned
		case errors.Is(err, backend.ErrLost), err == nil && next == 0:
			return err
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
		case <-t.abandoned.Done():
		case <-ctx.Done():
		case <-b.life.Context().Done():
		}
		timer.Stop()
		if err := b.going(ctx); err != nil {
			return err
		}
	}
}

// look returns what t waits for, after it waited for before. It returns 0 if there is nothing: then t holds the lock.
func (t *ticket) look(ctx context.Context, before uint64, deep bool) (uint64, error) {
	d, err := t.b.use(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, t.verified(func() error { return err })
	}
	if err != nil {
		return 0, err
	}
	defer t.b.leave(d, false)
	p, err := d.place(t.record.Share, t.number, before, deep)
	switch {
	case err != nil || p.before != 0:
		return p.before, err
	case t.record.Share.Capacity > 0:
		return t.claim(ctx)
	}
	return 0, t.verified(func() error {
		if t.record.Share.Exclusive() {
			d.setGranted(t.number)
		}
		return nil
	})
}

// claim takes the slots of a ticket that no live ticket before it keeps from its permits. It does so within the guard,
// so that no two tickets take the same slot. A ticket behind this one may have taken its slots before.
func (t *ticket) claim(ctx context.Context) (before uint64, err error) {
	g, err := t.b.enter(ctx, t.path, false)
	if g == nil {
		return 0, t.verified(func() error { return cmp.Or(err, errReplaced) })
	}
	defer g.exit()
	return before, t.verified(func() error {
		ns, err := g.numbers(newTicket)
		if err != nil {
			return err
		}
		p, err := g.permits(t.record.Share, t.number, ns)
		if before = p.before; err != nil || before != 0 {
			return err
		}
		r := t.record
		r.Slots = p.slots
		return t.change(r)
	})
}
