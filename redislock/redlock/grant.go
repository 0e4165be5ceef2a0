package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

var _ backend.Keeper = (*grant)(nil)

type grant struct {
	a     *attempt
	token uint64

	mu    sync.Mutex
	until time.Time
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Renew is one round trip to all nodes at once.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.renew(ctx, ttl, "0")
}

// Keep implements backend.Keeper.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	return g.renew(ctx, d, "1")
}

func (g *grant) renew(ctx context.Context, ttl time.Duration, exactly string) error {
	a, r := g.a, g.a.r
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	o, err := r.all(ctx, ttl, func(o outcome) bool {
		return len(r.renewals(o, ttl)) >= r.quorum || o.yes+o.unknown() < r.quorum
	}, func(i int, n *node) (protocol.Reply, error) {
		token, yielding := a.vote(i)
		if yielding {
			return protocol.Reply{}, errYielded
		}
		args := []any{n.r.proc.ChannelPrefix(), a.req.Owner, protocol.Millis(ttl), exactly}
		if r.opt.retention > 0 {
			args = append(args, protocol.Millis(r.opt.retention))
		}
		re, err := n.call(wire.Renew, a.names[:3], args...)
		if err == nil {
			a.renewed(i, token, re, ttl)
		}
		return re, err
	})
	untils := r.renewals(o, ttl)
	switch {
	case len(untils) >= r.quorum:
		g.mu.Lock()
		g.until = r.untilOf(untils)
		g.mu.Unlock()
		if exactly == "0" {
			a.retakeMissing(g.token)
		}
		return nil
	case o.yes+o.unknown() < r.quorum:
		a.onLost()
		return fmt.Errorf("%w: redis key %.200q is no longer held by this attempt at %d of %d nodes", backend.ErrLost, a.keys.Lock, o.no, len(r.nodes))
	}
	executed := o.yes > 0
	for i := range o.errs {
		if o.errs[i] == nil && o.replies[i].Status == protocol.Yes {
			o.errs[i] = r.clocks.check(i)
		}
	}
	failed := r.failed("acknowledged the renewal", len(untils), o.errs)
	if err != nil {
		failed = fmt.Errorf("%w: %w", err, failed)
	}
	doubt := func(err error) bool { return isUncertain(err) || errors.Is(err, errOverdue) }
	if err == nil && !executed && !slices.ContainsFunc(o.errs, doubt) {
		return backend.NotExecuted(failed)
	}
	return backend.Uncertain(failed)
}

var errYielded = errors.New("not counted: a yield without an answer may still give it away")

// vote returns the token of a node's grant, and whether a yield may still give it away.
func (a *attempt) vote(i int) (token uint64, yielding bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.votes[i].token, a.votes[i].yieldPending()
}

// renewals returns until when each node keeps the grant that it has renewed, of the nodes whose
// clocks agree.
func (r *Backend) renewals(o outcome, ttl time.Duration) (untils []time.Time) {
	for i, err := range o.errs {
		if err == nil && o.replies[i].Status == protocol.Yes && r.clocks.check(i) == nil {
			untils = append(untils, o.replies[i].Sent.Add(ttl))
		}
	}
	return untils
}

// renewed handles the answer of a node to the renewal of the grant with that token.
func (a *attempt) renewed(i int, token uint64, r protocol.Reply, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.votes[i]
	if r.Status == protocol.Yes {
		v.grant(token, r.Sent, r.Sent.Add(ttl), ttl)
		return
	}
	v.end(token)
}

// retakeMissing takes the key at nodes without this grant, after a quorum has confirmed it:
// nodes that were away, that restarted without their data, or with a yield without an
// answer. So all nodes may be restarted in turn under a holder.
func (a *attempt) retakeMissing(token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.withdrawn {
		return
	}
	for i, v := range a.votes {
		if missing := v.state != mine && v.err == errNotOurs; (missing || v.yieldPending()) && v.open == 0 { //nolint:errorlint // the very value
			v.ended = 0 // the grant that is taken back has its token
			a.askNode(i, holderTakes, token)
		}
	}
}

// Release frees the key at all nodes in one round trip. It returns when a quorum has
// acknowledged it. At the other nodes it continues in the background.
func (g *grant) Release(ctx context.Context) error {
	a, r := g.a, g.a.r
	a.giveUp()
	defer a.forget()
	o, err := a.freeAt(ctx, r.decided)
	left := len(r.nodes) - o.yes - o.no
	switch {
	case o.yes+o.unknown() < r.quorum:
		return fmt.Errorf("%w: redis key %.200q was no longer held by this attempt at %d of %d nodes", backend.ErrLost, a.keys.Lock, o.no, len(r.nodes))
	case left < r.quorum: // the others are no quorum
		a.endFreeing()
		return nil
	}
	failed := r.failed("acknowledged the release", o.yes, o.errs)
	if err != nil {
		failed = fmt.Errorf("%w: %w", err, failed)
	}
	return backend.Uncertain(failed)
}

// endFreeing ends a complete release: a second release then returns ErrLost.
func (a *attempt) endFreeing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.votes {
		v.freed = false
	}
}

func isUncertain(err error) bool { return errors.Is(err, backend.ErrUncertain) }
