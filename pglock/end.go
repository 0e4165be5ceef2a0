package pglock

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// endedGrant is the grant that a statement has ended, and to whom it handed over.
type endedGrant struct {
	again      bool            // nothing was done: the lock was used with shares
	asked      string          // owner that the statement named
	holder     *backend.Holder // the first one, if there were several; nil if nothing ended
	handedOver bool
	processes  []string // of the next holders, if they have one; and of the waiter that is notified when a lease of them ends
}

// ending is what end.sql is to end. If leave is set the attempt also leaves the queue.
type ending struct {
	key                          []byte
	owner, kind, process, secret string
	leave, tombstone             bool
	shares                       bool // the lock is known to be used with shares
}

// end ends a grant and returns its holder, or nil if there is none. The key is passed on again
// if it is not claimed.
func (b *Backend) end(ctx context.Context, e ending) (*backend.Holder, error) {
	for {
		all, err := b.endAll(ctx, 0, b.endCalls(e))
		if err != nil || len(all) == 0 {
			return nil, err
		}
		if all[0].again && !e.shares {
			e.shares = true
			continue
		}
		if all[0].handedOver {
			b.watch(e.key, all[0].processes)
		}
		return all[0].holder, nil
	}
}

func (b *Backend) endCalls(e ending) []call {
	lock, end := do(b.sql.lock, e.key), b.sql.end
	if e.shares {
		end = b.sql.endAny
		if e.kind != "pass" {
			lock = do(b.sql.lockHolders, e.key, e.owner)
		}
	}
	calls := []call{lock, do(b.sql.leave, e.key, e.owner, e.tombstone), do(end, e.key, e.owner, e.kind, e.process, e.secret, e.tombstone)}
	switch {
	case e.tombstone: // also if there is no row: a late request would insert it
		calls[0] = do(b.sql.ensure, e.key)
	case !e.leave:
		calls = slices.Delete(calls, 1, 2)
	}
	return calls
}

func (b *Backend) endAll(ctx context.Context, retryFor time.Duration, calls []call) ([]endedGrant, error) {
	all, _, err := query(ctx, b, retryFor, func(r pgx.CollectableRow) (e endedGrant, err error) {
		var holder, next, second string
		err = r.Scan(&e.asked, &holder, &e.handedOver, &next, &second, &e.again, nil, nil, nil, nil, nil, nil, nil)
		if h, ok := holderOf(holder); ok {
			e.holder = &h
		}
		e.processes = []string{next, second}
		return e, err
	}, calls...)
	return all, err
}

// release releases the grant of an attempt of this process, if it holds the key.
func (b *Backend) release(ctx context.Context, key []byte, owner string, tombstone, shares bool) (*backend.Holder, error) {
	return b.end(ctx, ending{key: key, owner: owner, kind: "release", process: b.process, secret: b.secretOf(owner), tombstone: tombstone, shares: shares})
}

// watchDelay lets a waiter that knows of the grant ask first: it may be granted itself.
const watchDelay = 100 * time.Millisecond

// watch sees to it that a process which is alive knows when a provisional grant ends: the
// process of the next holder and that of the waiter behind it may both be dead. A waiter of
// this process polls then; if there is none, watch passes the key on.
func (b *Backend) watch(key []byte, processes []string) {
	name := string(key[len(b.opt.prefix)+1:])
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[name]; l != nil && len(l.waiters) > 0 {
		l.pollIn(provisionalTTL)
		return
	}
	if slices.Contains(processes, b.process) || b.closed {
		return
	}
	if timer := b.watched[name]; timer != nil {
		timer.Reset(provisionalTTL + watchDelay) // a later hand-over delays the look; one that begins just then is repeated
		return
	}
	b.watched[name] = time.AfterFunc(provisionalTTL+watchDelay, func() {
		if !b.enter() {
			return
		}
		defer b.wg.Done()
		b.mu.Lock()
		delete(b.watched, name)
		b.mu.Unlock()
		_, _ = b.end(b.ctx, ending{key: key, kind: "pass"}) // and watches the next one
	})
}
