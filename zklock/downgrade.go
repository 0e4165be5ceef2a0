package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// Slots implements backend.SlotHolder.
func (g *grant) Slots() []int { return slices.Clone(g.slots) }

// maxConditional is how often Downgrade tries under the condition that no attempt has come
// since it read the queue. Then it goes without: a permit that comes meanwhile finds a reader
// and is refused, which the condition spares those that came before.
const maxConditional = 8

// Downgrade implements backend.Downgrader. It writes into the data of the node that it is that
// of a reader. The place in the queue and the token stay, and for a client that knows no shares
// the node excludes as before. Readers watch it, and read it again.
func (g *grant) Downgrade(ctx context.Context) error {
	if err := context.Cause(g.ended); err != nil || g.share != (backend.Share{}) {
		return err
	}
	if g.downgrading != nil { // a request that may still be executed
		select {
		case <-g.downgrading:
		case <-ctx.Done():
			return backend.Uncertain(ctx.Err())
		}
	}
	for n := 0; ; n++ {
		done, err := g.downgrade(ctx, n < maxConditional)
		switch {
		case done:
			g.share, g.downgrading, g.unsure = backend.Reader, nil, false
			return nil
		case errors.Is(err, zk.ErrNoNode):
			return g.setLost(fmt.Errorf("%w: the node %.200q was deleted", backend.ErrLost, g.path))
		case sessionEnded(err):
			return g.setLost(fmt.Errorf("%w: %w", backend.ErrLost, err))
		case g.unsure:
			return backend.Uncertain(err)
		case err != nil:
			return backend.NotExecuted(err)
		}
	}
}

// downgrade makes one request to change the node. It returns false without an error if another
// attempt has come meanwhile, or one that was in the way is gone.
func (g *grant) downgrade(ctx context.Context, conditional bool) (done bool, err error) {
	dir := g.a.dir
	if g.unsure {
		if err := g.s.sync(ctx); err != nil {
			return false, err
		}
	}
	own, err := g.s.get(ctx, g.path)
	switch {
	case err != nil:
		return false, err
	case own.stat == nil:
		return false, zk.ErrNoNode
	}
	says := contentOf(exclusiveNode, own.data)
	if says.share == backend.Reader {
		return true, nil
	}
	g.unsure = false
	l, err := g.s.list(ctx, dir, false)
	switch {
	case err != nil:
		return false, err
	case l.stat == nil:
		return false, zk.ErrNoNode
	}
	q, version := queue(l.names), l.stat.Version
	if i := slices.IndexFunc(q, func(c child) bool { return c.kind == permitsNode }); i >= 0 {
		waits, err := g.s.readContenders(ctx, dir, q[i:i+1])
		if err == nil && len(waits) > 0 {
			err = backend.CapacityError(backend.Reader, waits[0].share)
		}
		return false, err
	}
	if !conditional {
		version = -1
	}
	says.share = backend.Reader
	noted := dir + "/" + g.a.req.Owner + "-downgraded"
	_, pending, err := call(ctx, g.s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CheckVersionRequest{Path: dir, Version: version}, // every attempt that comes changes it
			&zk.SetDataRequest{Path: g.path, Data: says.data(exclusiveNode), Version: own.stat.Version},
			// for those that watch the children
			&zk.CreateRequest{Path: noted, Acl: g.a.b.opt.acl, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: noted, Version: -1},
		)
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, zk.ErrBadVersion):
		return false, nil
	case !answered(err) && !errors.As(err, &notSent{}):
		g.unsure, g.downgrading = true, pending
	}
	return false, explainChange(err, g.path)
}
