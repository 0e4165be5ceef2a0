package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TryAcquire makes one attempt: one round trip if the key is free. The attempt enters
// the queue, so it does not overtake waiters, and leaves it if it is not the first and its share
// does not fit. If
// the key was held the last time, TryAcquire first reads the queue, so repeated
// attempts write nothing.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return b.acquire(ctx, req, func(ctx context.Context, a *attempt) (*grant, error) {
		g, err := a.try(ctx)
		for r := (retries{}); g == nil && ctx.Err() == nil && r.allow(err); {
			g, err = a.try(ctx)
		}
		return g, err
	})
}

// Acquire takes the key. It waits in the queue until the attempt is the first.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return b.acquire(ctx, req, func(ctx context.Context, a *attempt) (*grant, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(b.life, func() { cancel(backend.ErrClosed) })()
		w := &waiter{a: a}
		return w.run(ctx)
	})
}

// acquire registers the attempt and runs f for it. An attempt that was sent twice gets
// the same grant.
func (b *Backend) acquire(ctx context.Context, req backend.Request, f func(context.Context, *attempt) (*grant, error)) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, backend.NotExecuted(err)
	}
	a := b.register(req)
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	defer a.unlock()
	if g := a.granted.Load(); g != nil && a.s != nil && a.s.endErr() == nil && a.path != "" {
		return g, nil
	}
	g, err := f(ctx, a)
	if g == nil {
		return nil, a.failed(ctx, err)
	}
	return g, nil
}

// failed classifies the error of an attempt that ended without a grant.
func (a *attempt) failed(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	if a.nothingRemains() {
		a.forget()
		return backend.NotExecuted(err)
	}
	if a.b.life.Err() != nil {
		err = fmt.Errorf("%w: %w", backend.ErrClosed, err)
	}
	if errors.Is(err, backend.ErrUncertain) {
		return err
	}
	return backend.Uncertain(err)
}

// retries counts the failures of an attempt that is not in the queue.
type retries struct{ connections, sessions int }

// allow reports whether to try again at once, up to twice for each cause. The library
// mostly replaces a lost connection at once. A session may have ended because its
// process, or the service, paused.
func (r *retries) allow(err error) bool {
	switch {
	case errors.As(err, &notOpened{}):
		return false
	case connectionLost(err):
		r.connections++
	case sessionEnded(err):
		r.sessions++
	default:
		return false
	}
	return r.connections <= 2 && r.sessions <= 2
}

// try makes one attempt without waiting.
func (a *attempt) try(ctx context.Context) (*grant, error) {
	start := time.Now()
	if err := a.prepare(ctx); err != nil {
		return nil, err
	}
	alone := false
	if a.path == "" {
		if a.b.wasHeld(a.req.Key) {
			if err := a.checkFree(ctx); err != nil {
				return nil, err
			}
		}
		var err error
		if alone, err = a.enqueue(ctx); err != nil {
			var used *usedUpError
			if errors.As(err, &used) {
				a.b.setHeld(a.req.Key, true)
				return nil, a.lockedError(ctx, used.queue)
			}
			return nil, err
		}
	}
	switch {
	case alone:
		a.slots = a.req.Share.FreeSlots(nil) // nothing was beside it
	case !a.req.Share.Exclusive():
		if granted, err := a.tryShare(ctx); !granted {
			return nil, err
		}
	default:
		q, i, err := a.position(ctx)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			a.b.setHeld(a.req.Key, true)
			return nil, a.withdraw(ctx, q)
		}
	}
	a.b.setHeld(a.req.Key, false)
	return a.grant(start, nil), nil
}

// prepare waits for the session, briefly for its connection, and finds out what became
// of earlier requests of the attempt.
func (a *attempt) prepare(ctx context.Context) error {
	if err := a.joinSession(ctx); err != nil {
		return err
	}
	within, cancel := withLimit(ctx, min(max(a.req.TTL/3, 250*time.Millisecond), a.b.opt.openTimeout))
	defer cancel()
	if err := a.s.awaitConnection(within); err != nil {
		return err
	}
	return a.resolveCreate(ctx)
}

// checkFree returns a LockedError if the queue is not empty, or a share would not fit.
func (a *attempt) checkFree(ctx context.Context) error {
	if err := a.s.sync(ctx); err != nil { // the server may not know yet of a release
		return err
	}
	names, err := a.s.children(ctx, a.dir)
	if err != nil {
		return err
	}
	q := queue(names)
	if len(q) == 0 {
		return nil
	}
	if !a.req.Share.Exclusive() {
		if st, err := a.judge(ctx, q, len(q), nil); err != nil || st.fits {
			return err
		}
	}
	return a.lockedError(ctx, q)
}

// withdraw leaves the queue q. It reads the holder at the same time.
func (a *attempt) withdraw(ctx context.Context, q []child) error {
	read := make(chan *backend.LockedError, 1)
	go func() { read <- a.lockedError(ctx, q) }()
	err := a.leaveQueue(ctx, backend.ErrLocked)
	locked := <-read
	if a.path != "" {
		return fmt.Errorf("%w; %w", locked, err)
	}
	return locked
}

// leaveQueue deletes the attempt's node. It returns why, and if it failed.
func (a *attempt) leaveQueue(ctx context.Context, why error) error {
	if err := a.s.deleteIfExists(ctx, a.path); err != nil {
		return fmt.Errorf("%w; cannot leave the queue: %w", why, err)
	}
	a.path = ""
	return why
}

const maxHeld = 4096

// wasHeld reports whether a key was held when TryAcquire last looked.
func (b *Backend) wasHeld(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[key]
}

func (b *Backend) setHeld(key string, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held) >= maxHeld {
		clear(b.held) // costs one write for each key that is tried again
	}
	if delete(b.held, key); held {
		b.held[key] = true
	}
}
