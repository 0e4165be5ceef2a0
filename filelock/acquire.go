package filelock

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/interlock-go/lock/backend"
)

// Path returns the directory of a lock, which need not exist.
func (b *Backend) Path(name string) (string, error) {
	if len(name) == 0 || len(name) > backend.MaxName {
		return "", backend.Invalid("lock name", name, fmt.Sprintf("1 to %d bytes", backend.MaxName))
	}
	return filepath.Join(b.root, dirName(b.prefix, name)), nil
}

// TryAcquire implements backend.Backend.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return b.acquire(ctx, &req, false)
}

// Acquire implements backend.Waiter. Nothing remains of an attempt that fails.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return b.acquire(ctx, &req, true)
}

func (b *Backend) acquire(ctx context.Context, req *backend.Request, waits bool) (backend.Grant, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.life.Leave()
	for first := true; ; first = false {
		t, before, locked, err := b.arrive(ctx, req, waits)
		switch {
		case err != nil:
			return nil, backend.NotExecuted(err)
		case t == nil:
			return nil, locked
		case locked == nil:
			t.hold()
			return t, nil
		case first && req.OnWait != nil:
			req.OnWait(locked)
		}
		err = b.wait(ctx, t, before, req.TTL)
		if err == nil {
			t.hold()
			return t, nil
		}
		if !errors.Is(err, backend.ErrLost) { // else another program deleted the ticket: queue again
			t.discard()
			return nil, backend.NotExecuted(err)
		}
	}
}

// arrive runs in the critical section. If the request is granted, or this attempt holds the lock, arrive returns its
// ticket. Else it returns a holder and, with waits set, also a ticket in the queue and what that waits for.
func (b *Backend) arrive(
	ctx context.Context, req *backend.Request, waits bool,
) (t *ticket, before uint64, locked *backend.LockedError, err error) {
	path, err := b.Path(req.Key)
	if err == nil {
		err = req.Share.Validate()
	}
	if err != nil {
		return nil, 0, nil, err
	}
	g, err := b.enter(ctx, path, true)
	if err != nil {
		return nil, 0, nil, err
	}
	defer g.exit()
	if t := b.ticket(ticketID{path, req.Owner}); t != nil && t.holds.Load() && t.Renew(ctx, 0) == nil {
		return t, 0, nil, nil
	}
	c, last := g.counter(), uint64(0)
	if c.granted != c.last { // else nothing waits, and the directory is read at once
		if ok, err := g.alive(c.last); err != nil {
			return nil, 0, nil, err
		} else if ok {
			last = c.last
		}
	}
	p, highest := place{before: last}, c.last
	switch {
	case last == 0: // the lock is free, or the last waiter has left
		p, highest, err = g.search(req.Share, c.last)
	case !req.Share.Exclusive():
		p, err = g.place(req.Share, newTicket, last, false)
	}
	if err != nil {
		return nil, 0, nil, err
	}
	if p.before != 0 {
		if locked, err = g.lockedError(c.granted, !waits); err != nil || !waits {
			return nil, 0, locked, err
		}
	}
	t, err = g.issue(req, highest, p)
	return t, p.before, locked, err
}

// search returns the place of a request, and the highest number that is known, by reading the directory. So a free
// lock is never granted on the word of the counter.
func (g *guard) search(s backend.Share, last uint64) (p place, highest uint64, err error) {
	if highest = last; last == 0 { // a new counter, or a damaged one
		highest = g.b.floor()
	}
	ns, err := g.numbers(newTicket)
	if err != nil {
		return p, 0, err
	}
	if len(ns) > 0 {
		highest = max(highest, ns[len(ns)-1])
	}
	switch p.before, err = g.lastAlive(ns); {
	case err != nil:
	case p.before == 0:
		p = place{alone: true, slots: s.FreeSlots(nil)}
	case !s.Exclusive():
		p, err = g.place(s, newTicket, p.before, false)
	}
	return p, highest, err
}

// lockedError describes the holder: the ticket that was granted last, if it is alive. Else others share the lock, or
// the one before the next holder has just ended: then the holder is not known without a reading of the directory.
func (g *guard) lockedError(granted uint64, reads bool) (*backend.LockedError, error) {
	c, alive, err := g.probe(granted)
	if !alive && err == nil && reads {
		var ns []uint64
		ns, err = g.numbers(newTicket)
		for c, err = range g.live(ns) {
			alive = true
			break
		}
	}
	locked := &backend.LockedError{}
	if alive {
		locked.Holder = c.holder()
	}
	return locked, err
}

// Abandon implements backend.Backend. An attempt is one of this Backend, which runs in one process, so no request is
// late.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.life.Leave()
	path, err := b.Path(req.Key)
	if err != nil {
		return err
	}
	if t := b.ticket(ticketID{path, req.Owner}); t != nil {
		t.abandon()
		t.discard()
	}
	return nil
}
