package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// errReplyLost is what a request fails with whose reply was dropped on purpose.
var errReplyLost = errors.New("the suite dropped the reply")

// errNotSent is what a request fails with that was not sent, on purpose.
var errNotSent = errors.New("the suite did not send the request")

// tamper stands between the core and a driver. It lets requests through and drops
// their replies, or holds them back, so that the driver's side of ambiguity can be
// tested without a network.
type tamper struct {
	backend.Backend

	dropTry, dropAcquire, dropAbandon, dropRenew, dropRelease, dropDowngrade atomic.Int64 // replies still to be dropped
	failRenew                                                                atomic.Bool  // renewals are not sent
	refuseDowngrade                                                          atomic.Bool  // requests to downgrade are not sent
	delayDowngrade                                                           atomic.Int64 // requests to downgrade that are sent later
	delayed                                                                  chan func()  // sends one of them

	afterRelease func()       // after a release whose reply is dropped
	releases     atomic.Int64 // releases sent
	late         atomic.Int64 // renewals begun after a release had been acknowledged
	requests     requests     // to acquire, with their waits, and to renew
}

// tamperQueue is tamper for a driver with a queue.
type tamperQueue struct{ *tamper }

func (tm *tamper) backend() backend.Backend {
	if _, ok := tm.Backend.(backend.Waiter); ok {
		return tamperQueue{tm}
	}
	return tm
}

// tamper returns a tampered independent client. Settings may be changed at any time.
func (t *T) tamper() *tamper { return &tamper{Backend: t.newBackend(), delayed: make(chan func(), 1)} }

func take(n *atomic.Int64) bool {
	for {
		v := n.Load()
		if v <= 0 {
			return false
		}
		if n.CompareAndSwap(v, v-1) {
			return true
		}
	}
}

func (tm *tamper) granted(g backend.Grant, err error, drop *atomic.Int64) (backend.Grant, error) {
	if take(drop) {
		return nil, backend.Uncertain(errReplyLost)
	}
	if err != nil {
		return nil, err
	}
	return &tamperGrant{Grant: g, tm: tm}, nil
}

func (tm *tamper) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	end := tm.requests.begin()
	g, err := tm.Backend.TryAcquire(ctx, req)
	end(err)
	return tm.granted(g, err, &tm.dropTry)
}

func (tm *tamper) Abandon(ctx context.Context, req backend.Request) error {
	err := tm.Backend.Abandon(ctx, req)
	if take(&tm.dropAbandon) {
		return backend.Uncertain(errReplyLost)
	}
	return err
}

func (q tamperQueue) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	end := q.requests.begin()
	g, err := q.Backend.(backend.Waiter).Acquire(ctx, req)
	end(err)
	return q.granted(g, err, &q.dropAcquire)
}

type tamperGrant struct {
	backend.Grant
	tm       *tamper
	released atomic.Bool
}

func (g *tamperGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if g.released.Load() {
		g.tm.late.Add(1)
	}
	if g.tm.failRenew.Load() {
		return backend.NotExecuted(errNotSent)
	}
	end := g.tm.requests.begin()
	err := g.Grant.Renew(ctx, ttl)
	end(err)
	if take(&g.tm.dropRenew) {
		return backend.Uncertain(errReplyLost)
	}
	return err
}

// Slots implements backend.SlotHolder as far as the driver does.
func (g *tamperGrant) Slots() []int {
	if s, ok := backend.As[backend.SlotHolder](g.Grant); ok {
		return s.Slots()
	}
	return nil
}

// Downgrade implements backend.Downgrader as far as the driver does.
func (g *tamperGrant) Downgrade(ctx context.Context) error {
	d, ok := backend.As[backend.Downgrader](g.Grant)
	if !ok {
		return errors.ErrUnsupported
	}
	if take(&g.tm.delayDowngrade) {
		g.tm.delayed <- func() { _ = d.Downgrade(context.WithoutCancel(ctx)) }
		return backend.Uncertain(errReplyLost)
	}
	if g.tm.refuseDowngrade.Load() && g.tm.dropDowngrade.Load() == 0 {
		return backend.NotExecuted(errNotSent)
	}
	err := d.Downgrade(ctx)
	if take(&g.tm.dropDowngrade) {
		return backend.Uncertain(errReplyLost)
	}
	return err
}

func (g *tamperGrant) Release(ctx context.Context) error {
	g.tm.releases.Add(1)
	err := g.Grant.Release(ctx)
	if take(&g.tm.dropRelease) {
		if g.tm.afterRelease != nil {
			g.tm.afterRelease()
		}
		return backend.Uncertain(errReplyLost)
	}
	if err == nil {
		g.released.Store(true)
	}
	return err
}
