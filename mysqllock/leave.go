package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const maxLeftovers = 1 << 16 // entries of Backend.leftovers

// leftover is what this process knows of an attempt that failed.
type leftover struct {
	place    int64 // in the queue
	answered bool  // no request of it is in flight
}

// remember records what is left of a failed attempt.
func (b *Backend) remember(owner string, l leftover) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.leftovers) >= maxLeftovers {
		clear(b.leftovers) // harmless: Abandon writes a tombstone for each of them
	}
	b.leftovers[owner] = l
}

// Abandon removes everything that remains of an attempt. It writes a tombstone, which refuses
// later requests of the attempt, unless each of its requests is known to be answered.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := checkOwner(req.Owner); err != nil {
		return err
	}
	b.mu.Lock()
	l := b.leftovers[req.Owner]
	b.mu.Unlock()
	_, err := b.leave(ctx, values{req: req, place: l.place}, !l.answered, !req.Share.Exclusive())
	if err == nil {
		b.mu.Lock()
		delete(b.leftovers, req.Owner)
		b.mu.Unlock()
	}
	return err
}

// left is the outcome of a packet of Backend.leavePacket.
type left struct {
	done       bool // else the row is as it was
	held       bool // the attempt held the key
	handedOver bool // to a waiter
	shares     bool // readers or permits may hold the key or wait for it
	more       bool // further waiters may fit
}

func (b *Backend) queryLeft(ctx context.Context, conn *sql.Conn, p packet) (l left, err error) {
	var released sql.NullInt64
	err = b.queryOne(ctx, conn, p, &l.done, &l.held, &l.handedOver, &l.shares, &l.more, &released)
	return l, err
}

// leave removes an attempt as holder or waiter and reports whether it held the key. shares says that
// readers or permits may hold the key or wait for it; if they do, unexpectedly, it is a second round trip.
func (b *Backend) leave(ctx context.Context, v values, bury, shares bool) (bool, error) {
	var l left
	var err error
	if !shares {
		l, err = b.leaveBy(ctx, v.req, b.leavePacket(v, bury))
	}
	if err == nil && !l.done {
		l, err = b.leaveBy(ctx, v.req, b.leaveSharesPacket(v, bury))
	}
	if err == nil && l.handedOver {
		b.watchHandOver(v.req.Key)
		b.lookAgain(v.req.Key)
		if l.more {
			_, _ = b.pass(ctx, values{req: backend.Request{Key: v.req.Key}}, true) // the attempt has left, whatever becomes of that
		}
	}
	return l.held, err
}

// pass ends the leases of a key that have expired, removes the waiters of processes that are dead or
// stopped, and grants the key to the next waiters. The state that it returns is for the attempt of v.
func (b *Backend) pass(ctx context.Context, v values, shares bool) (s rowState, err error) {
	if !shares && v.req.Share.Exclusive() {
		if s, err = b.overPool(ctx, b.passPacket(v)); err != nil || !s.shares {
			b.killProcesses(s.doomed)
			return s, err
		}
	}
	for {
		s, err = b.overPool(ctx, b.passSharesPacket(v))
		b.killProcesses(s.doomed)
		if err != nil || !s.more {
			return s, err
		}
	}
}

// leaveBy sends a packet, which also releases the named lock of the attempt if its lock connection
// is free.
func (b *Backend) leaveBy(ctx context.Context, req backend.Request, p packet) (l left, err error) {
	err = errConnBusy
	if c := b.notifier.connOf(req.Owner); c != nil {
		l, err = b.leaveOver(ctx, c, req, p)
	}
	if !errors.Is(err, errConnBusy) && number(err) != errLockWait {
		return l, err
	}
	l, err = run(ctx, b, b.poolConn, func(ctx context.Context, conn *sql.Conn) (left, error) { return b.queryLeft(ctx, conn, p) })
	if err == nil && l.done {
		b.notifier.releaseName(req.Owner)
	}
	return l, err
}

var errConnBusy = errors.New("mysql: the lock connection is in use or dead")

// leaveOver is leaveBy over c. It returns errConnBusy if c is not available.
func (b *Backend) leaveOver(ctx context.Context, c *lockConn, req backend.Request, p packet) (left, error) {
	source := func(ctx context.Context) (*sql.Conn, func(error), error) {
		if !c.checkout(ctx, releaseConnWait) {
			return nil, nil, errConnBusy
		}
		return c.conn, c.checkin, nil
	}
	return run(ctx, b, source, func(ctx context.Context, conn *sql.Conn) (left, error) {
		l, err := b.queryLeft(ctx, conn, p)
		if err == nil && l.done {
			b.notifier.mu.Lock()
			defer b.notifier.mu.Unlock()
			delete(b.notifier.owners, req.Owner)
		}
		return l, err
	})
}

const watchDelay = 100 * time.Millisecond // lets a waiter that knows of the grant ask first

// watchHandOver looks at a key when a grant that this process handed over ends, unless it is
// renewed: the process of the next holder may be dead, and others may wait for the end of the lease
// that was released.
func (b *Backend) watchHandOver(key string) { b.lookAfter(key, provisionalTTL) }

// lookAfter looks at a key when an unclaimed grant of it ends, which lasts for another d.
func (b *Backend) lookAfter(key string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch timer := b.handedOver[key]; {
	case b.closed:
	case timer != nil:
		timer.Reset(d + watchDelay) // a later hand-over delays the look; one that begins just then is repeated
	default:
		b.handedOver[key] = time.AfterFunc(d+watchDelay, func() { b.look(key) })
	}
}

func (b *Backend) look(key string) {
	if !b.enter() {
		return
	}
	defer b.wg.Done()
	b.mu.Lock()
	delete(b.handedOver, key)
	b.mu.Unlock()
	s, err := b.pass(b.life, values{req: backend.Request{Key: key}}, false)
	if err == nil && s.unclaimed {
		b.lookAfter(key, s.left())
	}
}

// killProcesses ends, in the background, the lock connections of processes whose waiters were removed, so
// that their named locks are free: they may be stopped. If the server refuses that, waiters read the row
// when the lease that they know of ends.
func (b *Backend) killProcesses(processes string) {
	if b.notifier == nil || processes == "" || !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		for process := range strings.SplitSeq(processes, ",") {
			for i := range maxLockConns {
				if process != b.process {
					b.notifier.kill(b.life, b.notifier.processName(process, i))
				}
			}
		}
	}()
}
