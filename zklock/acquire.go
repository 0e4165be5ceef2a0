package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// TryAcquire makes one attempt: one round trip if the key is free. It does not
// overtake, since it stands in the queue like everybody else, and leaves the
// queue at once if it is not the first. A key that was found held is looked at
// before the next attempt, in two round trips, so that trying again and again
// writes nothing.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := b.begin(req)
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	defer a.unlock()
	if g := a.again(); g != nil {
		return g, nil
	}
	g, err := a.try(ctx)
	for r := (retries{}); g == nil && ctx.Err() == nil && r.again(err); {
		g, err = a.try(ctx)
	}
	if g != nil {
		return g, nil
	}
	return nil, a.result(ctx, err)
}

// retries counts what an attempt that does not wait yet has gone on after.
type retries struct{ connections, sessions int }

// again tells whether to go on at once: a connection that breaks is replaced in no
// time, mostly, and so is a session that ended while its process, or the service,
// stood still.
func (r *retries) again(err error) bool {
	const most = 2 // of each
	switch {
	case lostConnection(err):
		r.connections++
		return r.connections <= most
	case sessionGone(err) && !errors.As(err, &notOpened{}):
		r.sessions++
		return r.sessions <= most
	}
	return false
}

// again is the grant of an attempt that is sent twice.
func (a *attempt) again() backend.Grant {
	if a.g != nil && a.s != nil && a.s.ended() == nil && a.path != "" {
		return &grant{a: a, s: a.g.s, path: a.g.path, token: a.g.token, until: a.g.Until(), same: a.g}
	}
	return nil
}

// result is the error of an attempt that has ended without a grant.
func (a *attempt) result(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = errors.Join(end, err)
	}
	if a.nothing() {
		a.gone()
		return err
	}
	if a.b.life.Err() != nil {
		err = errors.Join(backend.ErrClosed, err)
	}
	if !isUncertain(err) {
		err = backend.Uncertain(err)
	}
	return err
}

func (a *attempt) try(ctx context.Context) (backend.Grant, error) {
	start := time.Now()
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	if err := a.find(ctx); err != nil { // what this attempt sent before
		return nil, err
	}
	alone := false
	if a.path == "" {
		if a.b.wasHeld(a.req.Key) {
			// A server may lag behind what others were told: of a release, for one.
			if err := a.b.sync(ctx, a.s); err != nil {
				return nil, err
			}
			q, _, err := a.look(ctx)
			if err != nil {
				return nil, err
			}
			if len(q) > 0 {
				return nil, a.describe(ctx, q)
			}
		}
		var err error
		if alone, err = a.enter(ctx); err != nil {
			return nil, err
		}
	}
	if !alone {
		q, i, err := a.look(ctx)
		switch {
		case err != nil:
			return nil, err
		case i < 0:
			a.path = ""
			return nil, fmt.Errorf("zookeeper: node %.200q: its child was deleted by somebody", a.dir)
		case i > 0:
			a.b.setHeld(a.req.Key, true)
			return nil, a.withdraw(ctx, q)
		}
	}
	a.b.setHeld(a.req.Key, false)
	return a.grant(start, nil), nil
}

// withdraw leaves the queue, and says who holds the key meanwhile.
func (a *attempt) withdraw(ctx context.Context, q []child) error {
	said := make(chan *backend.LockedError, 1)
	go func() { said <- a.describe(ctx, q) }()
	err := deleteNode(ctx, a.s, a.path)
	locked := <-said
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return errors.Join(err, locked)
	}
	a.path = ""
	return locked
}

// ready waits for a session, and a little while for its connection.
func (a *attempt) ready(ctx context.Context) error {
	if err := a.join(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(a.req.TTL/3, 250*time.Millisecond), a.b.opt.wait))
	defer cancel()
	return a.s.await(ctx)
}

const mostHeld = 4096

// wasHeld tells whether a key was found held when it was last looked at.
func (b *Backend) wasHeld(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, held := b.held[key]
	return held
}

func (b *Backend) setHeld(key string, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !held {
		delete(b.held, key)
		return
	}
	if len(b.held) >= mostHeld {
		clear(b.held) // harmless: those forgotten are tried before they are looked at
	}
	b.held[key] = struct{}{}
}

// Acquire takes the key, waiting in the queue for its turn.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := b.begin(req)
	if err := a.lock(ctx); err != nil {
		return nil, err
	}
	defer a.unlock()
	if g := a.again(); g != nil {
		return g, nil
	}
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.life, func() { cancel(backend.ErrClosed) })()
	w := &wait{a: a}
	g, err := w.run(bound)
	if g != nil {
		return g, nil
	}
	return nil, a.result(ctx, err)
}
