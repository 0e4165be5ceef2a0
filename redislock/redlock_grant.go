package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

var _ backend.Keeper = (*quorumGrant)(nil)

type quorumGrant struct {
	a     *ballot
	token uint64

	mu    sync.Mutex
	until time.Time
}

func (g *quorumGrant) Token() uint64 { return g.token }

func (g *quorumGrant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Renew is one round trip to all nodes at once.
func (g *quorumGrant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.renew(ctx, ttl, "0")
}

// Keep implements backend.Keeper.
func (g *quorumGrant) Keep(ctx context.Context, d time.Duration) error {
	return g.renew(ctx, d, "1")
}

func (g *quorumGrant) renew(ctx context.Context, ttl time.Duration, exactly string) error {
	a, r := g.a, g.a.r
	if err := ctx.Err(); err != nil {
		return err
	}
	o, err := r.all(ctx, ttl, func(o outcome) bool {
		return o.yes >= r.quorum || o.yes+o.unknown() < r.quorum
	}, func(i int, n *voter) (reply, error) {
		if a.barred(i) {
			return reply{}, errYielded
		}
		re, err := n.call(renewScript, a.names[:3], n.b.channelPrefix(), a.req.Owner, millis(ttl), exactly)
		if err == nil {
			a.renewed(i, re, ttl)
		}
		return re, err
	})
	switch {
	case o.yes >= r.quorum:
		g.extended(o, ttl)
		if exactly == "0" {
			a.spread(g.token)
		}
		return nil
	case o.yes+o.unknown() < r.quorum:
		a.gone()
		return fmt.Errorf("%w: redis key %.200q is not ours any more at %d of %d nodes", backend.ErrLost, a.keys.lock, o.no, len(r.nodes))
	}
	failed := r.failed("renewed", o.yes, o.errs)
	if err != nil {
		failed = fmt.Errorf("%w: %w", err, failed)
	}
	doubt := func(err error) bool { return isUncertain(err) || errors.Is(err, errOverdue) }
	if err == nil && o.yes == 0 && !slices.ContainsFunc(o.errs, doubt) {
		return failed // it is extended nowhere
	}
	return backend.Uncertain(failed)
}

var errYielded = errors.New("not counted: what gave it away may still arrive")

func (a *ballot) barred(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.votes[i].barred()
}

// extended moves the end to what a majority keeps.
func (g *quorumGrant) extended(o outcome, ttl time.Duration) {
	var untils []time.Time
	for i, err := range o.errs {
		if err == nil && o.replies[i].status == yes {
			untils = append(untils, o.replies[i].sent.Add(ttl))
		}
	}
	slices.SortFunc(untils, func(a, b time.Time) int { return b.Compare(a) })
	g.mu.Lock()
	g.until = untils[g.a.r.quorum-1]
	g.mu.Unlock()
}

// renewed takes in what a node said to a renewal.
func (a *ballot) renewed(i int, r reply, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := &a.votes[i]
	if r.us < v.us {
		return
	}
	if r.status == yes {
		v.grant(r.us, r.sent, v.token, r.sent.Add(ttl), ttl)
		return
	}
	v.state, v.err, v.us, v.token = silent, errNotOurs, r.us, 0
}

// spread takes the key at nodes that do not hold it for this grant, which a majority
// has just confirmed: those that were away, came back empty, or where a yield has no answer. So one node after the
// other may be restarted under a holder.
func (a *ballot) spread(token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	for i := range a.votes {
		v := &a.votes[i]
		if gone := v.state != mine && v.err == errNotOurs; (gone || v.barred()) && v.open == 0 { //nolint:errorlint // the very value
			a.askNode(i, holderTakes, token)
		}
	}
}

// Release frees the key at all nodes in one round trip. It returns when a majority
// has said so; where it was not acknowledged it goes on in the background.
func (g *quorumGrant) Release(ctx context.Context) error {
	a, r := g.a, g.a.r
	a.giveUp()
	defer a.forget()
	o, err := r.all(ctx, a.req.TTL, func(o outcome) bool {
		return o.yes >= r.quorum || o.yes+o.unknown() < r.quorum
	}, func(i int, _ *voter) (reply, error) {
		re, err := a.free(i)
		if err != nil {
			a.clean(i)
		}
		return re, err
	})
	left := len(r.nodes) - o.yes - o.no
	switch {
	case o.yes+o.unknown() < r.quorum:
		return fmt.Errorf("%w: redis key %.200q was not ours any more at %d of %d nodes", backend.ErrLost, a.keys.lock, o.no, len(r.nodes))
	case left < r.quorum: // the others are no majority
		a.freedAll()
		return nil
	}
	failed := r.failed("released", o.yes, o.errs)
	if err != nil {
		failed = fmt.Errorf("%w: %w", err, failed)
	}
	return backend.Uncertain(failed)
}

// freedAll is called when freeing is complete: who asks again is told that the key is
// not ours.
func (a *ballot) freedAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		a.votes[i].freed = false
	}
}
