package redlock

import (
	"context"
	"time"

	"github.com/interlock-go/lock/redislock/internal/server"

	"github.com/interlock-go/lock/redislock/internal/protocol"
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
	for i := range a.votes {
		mayRemain = mayRemain || a.votes[i].mayRemain || a.votes[i].open > 0
	}
	return mayRemain
}

// mayRemain reports whether something of the attempt may remain at a node that has answered.
func (a *attempt) mayRemain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if a.votes[i].mayRemain {
			return true
		}
	}
	return false
}

// onLost frees the grants of a minority of the nodes after the grant of the attempt was lost.
func (a *attempt) onLost() {
	a.giveUp()
	if !a.r.enter() {
		return
	}
	go func() {
		defer a.r.wg.Done()
		a.freeEverywhere()
		a.forget()
	}()
}

// assumeAnything is for an attempt of another process: each node may have a grant or a place
// of it, with any ticket, and a request may be in flight.
func (a *attempt) assumeAnything() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freeBy = quorumAbandon
	for i := range a.votes {
		a.votes[i].mayRemain, a.votes[i].dirty = true, true
	}
}

// free releases or dequeues the attempt at a node, if something of it may be there. It leaves
// a tombstone only if a request of the attempt may be in flight. The status is Yes if this
// attempt has freed the key, now or before.
func (a *attempt) free(i int) (protocol.Reply, error) {
	v := &a.votes[i]
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
	r, err := n.call(a.freeBy, a.names, n.args(token, a.req.Owner, protocol.Tombstone(late), a.member)...)
	if err != nil {
		return r, err
	}
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
	v := &a.votes[i]
	if v.cleaning || !a.r.enter() {
		a.mu.Unlock()
		return
	}
	v.cleaning = true
	a.mu.Unlock()
	go func() {
		defer a.r.wg.Done()
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
	}()
}

// tombstoned reports whether a node may have a tombstone of the attempt.
func (a *attempt) tombstoned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if a.votes[i].tombstoned {
			return true
		}
	}
	return false
}

// freeEverywhere frees the attempt at all nodes where something of it may be. It returns when
// every node has answered, or after the timeout; at the others it continues in the
// background.
func (a *attempt) freeEverywhere() outcome {
	o, _ := a.r.all(context.Background(), a.req.TTL, allNodes, func(i int, _ *node) (protocol.Reply, error) {
		r, err := a.free(i)
		if err != nil {
			a.freeInBackground(i)
		}
		return r, err
	})
	return o
}
