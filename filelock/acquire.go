package filelock

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

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
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.active.Done()
	t, _, locked, err := b.arrive(ctx, &req, false)
	if err != nil {
		return nil, backend.NotExecuted(err)
	}
	if locked != nil {
		return nil, locked
	}
	t.hold()
	return t, nil
}

// Acquire implements backend.Waiter. Nothing remains of an attempt that fails.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.active.Done()
	for first := true; ; first = false {
		t, p, locked, err := b.arrive(ctx, &req, true)
		if err != nil {
			return nil, backend.NotExecuted(err)
		}
		if locked != nil {
			if first && req.OnWait != nil {
				req.OnWait(locked)
			}
			if err := b.wait(ctx, t, p.before, req.TTL); errors.Is(err, errGone) {
				continue // another program deleted the ticket: queue again
			} else if err != nil {
				t.discard()
				return nil, backend.NotExecuted(err)
			}
		}
		t.hold()
		return t, nil
	}
}

// arrive runs in the critical section. If the request is granted, or this attempt holds the
// lock, arrive returns its ticket. Else it returns a holder and, with queue=true, also a
// ticket in the queue and its place.
func (b *Backend) arrive(ctx context.Context, req *backend.Request, queue bool) (t *ticket, p place, locked *backend.LockedError, err error) {
	path, err := b.Path(req.Key)
	if err == nil {
		err = req.Share.Validate()
	}
	if err != nil {
		return nil, p, nil, err
	}
	g, err := b.enter(ctx, path, true)
	if err != nil {
		return nil, p, nil, err
	}
	defer g.exit()
	if t := b.held(ticketID{path, req.Owner}); t != nil {
		return t, p, nil, nil
	}
	c := readCounter(g.fence)
	highest := c.last
	if highest == 0 { // a new counter, or a damaged one
		highest = b.floor()
	}
	last, err := g.dir.living(c.last)
	if err != nil {
		return nil, p, nil, err
	}
	holder := c.granted
	if last == 0 { // the lock is free, or the last waiter has left
		ns, err := g.dir.numbers()
		if err != nil {
			return nil, p, nil, err
		}
		highest = slices.Max(append(ns, highest))
		if last, err = g.dir.lastAlive(ns); err != nil {
			return nil, p, nil, err
		}
		if holder, err = g.dir.firstAlive(ns); err != nil {
			return nil, p, nil, err
		}
	}
	if p.before = last; !req.Share.Exclusive() {
		if p, err = g.join(req.Share, c, last); err != nil {
			return nil, p, nil, err
		}
	}
	if p.before != 0 {
		locked = &backend.LockedError{Holder: g.holder(holder, c.shared > c.granted)}
		if !queue {
			return nil, p, locked, nil
		}
	}
	t, err = g.issue(req, highest, last == 0, p)
	return t, p, locked, err
}

// holder returns the holder of a ticket, if it is alive. Without it the holder is not known, unless
// several can hold the lock: then holder looks for the first.
func (g *guard) holder(n uint64, several bool) (h backend.Holder) {
	n, err := g.dir.living(n)
	if n == 0 && err == nil && several {
		var ns []uint64
		if ns, err = g.dir.numbers(); err == nil {
			n, err = g.dir.firstAlive(ns)
		}
	}
	if n != 0 && err == nil {
		h = g.dir.holder(n)
	}
	return h
}

// ticket returns the live ticket of an attempt, or nil.
func (b *Backend) ticket(id ticketID) *ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tickets[id]
}

// held returns the ticket of an attempt that already holds its lock.
func (b *Backend) held(id ticketID) *ticket {
	t := b.ticket(id)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.holds || t.verify() != nil {
		return nil
	}
	return t
}

// Abandon implements backend.Backend. An attempt is one of this Backend, which runs in one
// process, so no request is late.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.active.Done()
	path, err := b.Path(req.Key)
	if err != nil {
		return err
	}
	if t := b.ticket(ticketID{path, req.Owner}); t != nil {
		t.abandon()
	}
	return nil
}
