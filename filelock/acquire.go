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
		t, before, locked, err := b.arrive(ctx, &req, true)
		if err != nil {
			return nil, backend.NotExecuted(err)
		}
		if locked != nil {
			if first && req.OnWait != nil {
				req.OnWait(locked)
			}
			if err := b.wait(ctx, t, before, req.TTL); errors.Is(err, errGone) {
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

// arrive runs in the critical section. If the lock is free, or this attempt holds it,
// arrive returns its ticket. Else it returns the holder and, with queue=true, also
// a ticket in the queue and the number of the live ticket before it.
func (b *Backend) arrive(ctx context.Context, req *backend.Request, queue bool) (t *ticket, before uint64, locked *backend.LockedError, err error) {
	dir, err := b.Path(req.Key)
	if err != nil {
		return nil, 0, nil, err
	}
	g, err := b.enter(ctx, dir, true)
	if err != nil {
		return nil, 0, nil, err
	}
	defer g.exit()
	if t := b.held(ticketID{dir, req.Owner}); t != nil {
		return t, 0, nil, nil
	}
	all, err := numbers(dir)
	if err != nil {
		return nil, 0, nil, err
	}
	ns, err := g.sweep(all)
	if err != nil {
		return nil, 0, nil, err
	}
	if len(ns) == 0 {
		t, err = g.issue(req, highest(all))
		return t, 0, nil, err
	}
	locked = &backend.LockedError{Holder: holder(dir, ns[0])}
	if !queue {
		return nil, 0, locked, nil
	}
	i, err := lastAlive(dir, ns)
	if err != nil {
		return nil, 0, nil, err
	}
	if i >= 0 {
		before = ns[i]
	} // else the holder left meanwhile: the wait begins with a look
	t, err = g.issue(req, highest(all))
	return t, before, locked, err
}

func highest(ns []uint64) uint64 {
	if len(ns) == 0 {
		return 0
	}
	return ns[len(ns)-1]
}

// held returns the ticket of an attempt that already holds its lock.
func (b *Backend) held(id ticketID) *ticket {
	b.mu.Lock()
	t := b.tickets[id]
	b.mu.Unlock()
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

// Abandon implements backend.Backend. An attempt runs in one process, so no request is
// late. A ticket of another Backend is removed as by Break.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.active.Done()
	dir, err := b.Path(req.Key)
	if err != nil {
		return err
	}
	g, err := b.enter(ctx, dir, false)
	if g == nil {
		return err
	}
	defer g.exit()
	b.mu.Lock()
	t := b.tickets[ticketID{dir, req.Owner}]
	b.mu.Unlock()
	if t != nil {
		t.abandon()
	}
	ns, err := numbers(dir)
	if err != nil {
		return err
	}
	for _, n := range ns {
		if r, foreign := read(dir, n); !foreign && r.Owner == req.Owner {
			if err := remove(ticketPath(dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}
