package redislock

import (
	"context"
	"time"
)

// forget ends the attempt's being known. A grant pushed later is returned.
func (a *ballot) forget() {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if a.r.ballots[a.req.Owner] == a {
		delete(a.r.ballots, a.req.Owner)
	}
}

// giveUp ends the attempt: whatever arrives now is undone. It reports whether
// anything of it may be at a node. It stays known until all that is freed.
func (a *ballot) giveUp() (touched bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for i := range a.votes {
		touched = touched || a.votes[i].touched || a.votes[i].open > 0
	}
	return touched
}

// touched reports whether anything of the attempt may be at a node whose answer is known.
func (a *ballot) touched() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if a.votes[i].touched {
			return true
		}
	}
	return false
}

// gone follows the loss of a grant. The core asks nothing more of it, but a minority
// of the nodes may hold it still.
func (a *ballot) gone() {
	a.giveUp()
	if !a.r.enter() {
		return
	}
	go func() {
		defer a.r.wg.Done()
		a.undo()
		a.forget()
	}()
}

// anything is of an attempt that nothing is known of: at each node may be anything of
// it, under any ticket, and a request may be on its way.
func (a *ballot) anything() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freeBy = quorumAbandon
	for i := range a.votes {
		a.votes[i].touched, a.votes[i].dirty = true, true
	}
}

// free releases or dequeues the attempt at a node, if something of it may be there.
// A tombstone is left only if a request of it may be on its way. The status is yes if
// this attempt itself has freed the key, now or before.
func (a *ballot) free(i int) (reply, error) {
	v := &a.votes[i]
	v.freeing.Lock()
	defer v.freeing.Unlock()
	a.mu.Lock()
	open, answered := v.open > 0, v.answered
	a.mu.Unlock()
	if open { // mostly the answer is close, and spares the tombstone
		patience := time.NewTimer(a.r.nodeTimeout(a.req.TTL))
		defer patience.Stop()
		select {
		case <-answered:
		case <-patience.C:
		case <-a.r.life.Done():
		}
	}
	a.mu.Lock()
	late := v.open > 0 || v.dirty
	done := !late && (!v.touched || v.freed)
	freed, token := v.freed || !v.touched, a.token
	v.buried = v.buried || late
	a.mu.Unlock()
	if done {
		status := int64(no)
		if freed {
			status = yes
		}
		return reply{status: status}, nil
	}
	r, err := a.r.nodes[i].call(a.freeBy, a.names, a.r.args(token, a.req.Owner, tombstone(late), a.member)...)
	if err != nil {
		return r, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v.dirty = false
	if r.us >= v.us {
		v.state, v.err, v.token, v.us = silent, errNotOurs, 0, r.us
	}
	if v.freed = v.freed || r.status == yes; v.freed {
		r.status = yes
	}
	return r, nil
}

// clean frees the attempt at a node in the background, until that is acknowledged
// or has run out by itself.
func (a *ballot) clean(i int) {
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
			sleep(a.r.life, backoff/2+jitter(backoff/2))
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		v.cleaning = false
	}()
}

// buried reports whether a tombstone of the attempt may be at a node.
func (a *ballot) buried() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if a.votes[i].buried {
			return true
		}
	}
	return false
}

// undo frees the attempt wherever something of it may be. It returns when every node
// has answered, or the time allowed to one has passed; the rest goes on behind.
func (a *ballot) undo() outcome {
	o, _ := a.r.all(context.Background(), a.req.TTL, everyone, func(i int, _ *voter) (reply, error) {
		r, err := a.free(i)
		if err != nil {
			a.clean(i)
		}
		return r, err
	})
	return o
}
