package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// forget removes the attempt. A grant that is pushed later is released.
func (a *attempt) forget() {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if a.r.attempts[a.req.Owner] == a {
		delete(a.r.attempts, a.req.Owner)
	}
}

// giveUp withdraws the attempt: later grants are released. It reports whether something of
// the attempt may remain at a node. The attempt stays registered until that is freed.
func (a *attempt) giveUp() (mayRemain bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withdrawn = true
	return slices.ContainsFunc(a.votes, func(v *vote) bool { return v.mayRemain || v.open > 0 })
}

// any reports whether a vote meets a condition.
func (a *attempt) any(condition func(*vote) bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.votes, condition)
}

// onLost frees the grants of a minority of the nodes after the grant of the attempt was lost.
func (a *attempt) onLost() {
	a.giveUp()
	a.r.nodes[0].srv.Go(func() {
		a.freeEverywhere()
		a.forget()
	})
}

// assumeAnything is for an attempt of another process: each node may have a grant or a place
// of it, with any ticket, and a request may be in flight.
func (a *attempt) assumeAnything() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freeBy = wire.Abandon
	for _, v := range a.votes {
		v.mayRemain, v.dirty = true, true
	}
}

// free releases or dequeues the attempt at a node, if something of it may be there. It leaves
// a tombstone only if a request of the attempt may be in flight. The status is Yes if this
// attempt has freed the key, now or before.
func (a *attempt) free(i int) (protocol.Reply, error) {
	v := a.votes[i]
	v.freeing.Lock()
	defer v.freeing.Unlock()
	a.mu.Lock()
	open, answered := v.open > 0, v.answered
	a.mu.Unlock()
	if open { // usually the answer comes soon, and no tombstone is needed
		timeout := time.NewTimer(a.r.nodeTimeout(a.req.TTL))
		defer timeout.Stop()
		select {
		case <-answered:
		case <-timeout.C:
		case <-a.r.life.Done():
		}
	}
	a.mu.Lock()
	late := v.open > 0 || v.dirty
	done := !late && (!v.mayRemain || v.freed)
	freed, token := v.freed || !v.mayRemain, a.token
	v.tombstoned = v.tombstoned || late
	a.mu.Unlock()
	if done {
		status := int64(protocol.No)
		if freed {
			status = protocol.Yes
		}
		return protocol.Reply{Status: status}, nil
	}
	n := a.r.nodes[i]
	r, err := n.call(a.freeBy, a.names, n.args(token, a.req.Owner, wire.Tombstone(late), a.member)...)
	if err != nil {
		return r, err
	}
	n.follow(a.keys, r.Num(0))
	a.mu.Lock()
	defer a.mu.Unlock()
	v.dirty = false
	v.end(v.token)
	if v.freed = v.freed || r.Status == protocol.Yes; v.freed {
		r.Status = protocol.Yes
	}
	return r, nil
}

// freeInBackground frees the attempt at a node until that is acknowledged or the grant has
// expired.
func (a *attempt) freeInBackground(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.votes[i]
	if v.cleaning {
		return
	}
	v.cleaning = a.r.nodes[i].srv.Go(func() {
		end := time.Now().Add(a.req.TTL + time.Second)
		for backoff := 10 * time.Millisecond; time.Now().Before(end) && a.r.life.Err() == nil; backoff = min(2*backoff, 500*time.Millisecond) {
			if _, err := a.free(i); err == nil {
				break
			}
			server.Sleep(a.r.life, backoff/2+jitter(backoff/2))
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		v.cleaning = false
	})
}

// freeAt frees the attempt at all nodes, as Backend.all does. It continues in the background
// at the nodes that do not answer.
func (a *attempt) freeAt(ctx context.Context, enough func(outcome) bool) (outcome, error) {
	return a.r.all(ctx, a.req.TTL, enough, func(i int, _ *node) (protocol.Reply, error) {
		r, err := a.free(i)
		if err != nil {
			a.freeInBackground(i)
		}
		return r, err
	})
}

// freeEverywhere returns when every node has answered, or after the timeout.
func (a *attempt) freeEverywhere() outcome {
	o, _ := a.freeAt(context.Background(), allNodes)
	return o
}
