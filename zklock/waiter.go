package zklock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// waiter is one call of Acquire.
type waiter struct {
	a           *attempt
	queued      bool      // the service has confirmed a place in the queue
	reported    bool      // OnWait was called
	lastContact time.Time // last answer of the service

	watches  map[string]node // by name: the nodes in front, and the own one
	nearHead bool            // the next look may find the attempt in the second place
}

// run waits over lost connections and ended sessions, until the service has not answered
// for a TTL. The process may have been stopped for that long, so run gives up only after an
// attempt that began later.
func (w *waiter) run(ctx context.Context) (*grant, error) {
	a := w.a
	pause := 10 * time.Millisecond
	var r retries
	for {
		begun := time.Now()
		g, err := w.waitInSession(ctx)
		if g != nil {
			return g, nil
		}
		if a.s != nil {
			if t := a.s.clock.times().answeredAt; t.After(w.lastContact) {
				w.lastContact = t
			}
		}
		switch {
		case ctx.Err() != nil, permanent(err):
			return nil, err
		case !w.queued:
			if !r.allow(err) {
				return nil, err
			}
			continue
		case begun.Sub(w.lastContact) >= a.req.TTL:
			return nil, fmt.Errorf("zookeeper: no answer for %v: %w", time.Since(w.lastContact).Round(time.Millisecond), err)
		}
		sleep(ctx, pause)
		pause = min(2*pause, a.req.TTL/12+time.Millisecond, 500*time.Millisecond)
	}
}

// waitInSession waits in one session until a grant or an error.
func (w *waiter) waitInSession(ctx context.Context) (*grant, error) {
	a := w.a
	start := time.Now()
	within, cancel := ctx, context.CancelFunc(func() {})
	if w.queued { // it waits for the service until run gives up
		left := a.req.TTL - time.Since(w.lastContact)
		within, cancel = withLimit(ctx, max(left, a.req.TTL/4, 250*time.Millisecond))
	}
	err := a.prepare(within)
	cancel()
	if err != nil {
		return nil, err
	}
	for a.path == "" {
		alone, err := a.enqueue(ctx)
		var used *usedUpError
		switch {
		case errors.As(err, &used):
			if err := w.awaitEmptyQueue(ctx, used.queue); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case alone:
			return a.grant(start, nil), nil
		}
	}
	w.watches, w.nearHead = map[string]node{}, false
	for {
		q, i, err := w.position(ctx)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			return a.grant(time.Now(), w.ownWatch()), nil
		}
		w.queued, w.lastContact = true, time.Now()
		g, err := w.awaitChange(ctx, q, i)
		if g != nil || err != nil {
			return g, err
		}
	}
}

// position returns the queue and the index of the attempt in it. Near the head of the
// queue it also watches the own node, for the next event.
func (w *waiter) position(ctx context.Context) (q []child, i int, err error) {
	watched := make(chan error, 1)
	own := "" // none
	if w.nearHead && w.a.s.connNumber() != 0 {
		own = path.Base(w.a.path)
	}
	go func() { watched <- w.addWatches(ctx, own) }()
	q, i, err = w.a.position(ctx)
	if e := <-watched; err == nil {
		err = e
	}
	return q, i, err
}

// awaitChange waits until one of the two nodes in front of the attempt, or its own, is
// deleted. i is the attempt's index in the queue q. If both results are nil, the caller
// must read the queue again.
//
// A node that was once the second is the first when the node in front of it is deleted,
// since no node enters before it. So the attempt is granted without a request if the watch
// of its own node proves that this still exists. To read the queue in time for that, the
// waiter also watches the node before its predecessor, and reads when that is
// deleted, while the predecessor holds the lock.
func (w *waiter) awaitChange(ctx context.Context, q []child, i int) (*grant, error) {
	a := w.a
	predecessor, before, own := q[i-1].node, "", path.Base(a.path)
	if i > 1 {
		before = q[i-2].node
	}
	if _, ok := w.watches[own]; !ok && (i > 1 || a.s.connNumber() == 0) {
		own = ""
	}
	if err := w.addWatches(ctx, predecessor, before, own); err != nil {
		return nil, err
	}
	maps.DeleteFunc(w.watches, func(n string, _ node) bool { return n != predecessor && n != before && n != own })
	w.nearHead = true
	// An empty name has the zero node, whose nil channel is never ready.
	front, second, mine := w.watches[predecessor], w.watches[before], w.watches[own]
	if front.stat == nil || before != "" && second.stat == nil || own != "" && mine.stat == nil {
		return nil, nil // deleted meanwhile
	}
	holder := node{}
	switch i {
	case 1:
		holder = front
	case 2:
		holder = second
	}
	w.reportWaiting(q, holder)
	which, e, err := w.awaitEvent(ctx, front, second, mine)
	if err != nil {
		return nil, err
	}
	delete(w.watches, [...]string{predecessor, before, own}[which])
	proof := w.ownWatch()
	if which == 0 && e.Type == zk.EventNodeDeleted && i == 1 && proof != nil {
		return a.grant(time.Now(), proof), nil
	}
	return nil, nil
}

// awaitEvent waits for an event of one of up to three nodes, and returns its index. The
// zero node has no events.
func (w *waiter) awaitEvent(ctx context.Context, nodes ...node) (which int, e zk.Event, err error) {
	nodes = append(nodes, node{}, node{})
	s, ttl := w.a.s, w.a.req.TTL
	silence := time.NewTimer(ttl)
	defer silence.Stop()
	for {
		select {
		case e := <-nodes[0].event:
			return 0, e, nil
		case e := <-nodes[1].event:
			return 1, e, nil
		case e := <-nodes[2].event:
			return 2, e, nil
		case <-s.done:
			return -1, e, s.endErr()
		case <-ctx.Done():
			return -1, e, context.Cause(ctx)
		case <-silence.C:
			left := ttl - time.Since(s.clock.times().answeredAt)
			if left <= 0 {
				return -1, e, errors.New("zookeeper: the server does not answer")
			}
			silence.Reset(left)
		}
	}
}

// reportWaiting calls OnWait once. Only the two waiters behind the holder have read its
// node, and so more than its owner id.
func (w *waiter) reportWaiting(q []child, holder node) {
	if w.reported || w.a.req.OnWait == nil {
		return
	}
	w.reported = true
	w.a.req.OnWait(&backend.LockedError{Holder: newHolder(q[0].owner, holder)})
}

// addWatches watches these children of the lock's node. It skips empty names and those
// that are watched already.
func (w *waiter) addWatches(ctx context.Context, nodes ...string) error {
	nodes = slices.DeleteFunc(nodes, func(n string) bool { _, ok := w.watches[n]; return ok || n == "" })
	watched, err := w.a.s.readAll(ctx, w.a.dir, nodes, w.a.s.watch)
	for i, n := range watched {
		w.watches[nodes[i]] = n
	}
	return err
}

// ownWatch returns the watch of the waiter's own node if it proves that the node
// existed when the last event arrived, else nil. Events of one connection arrive in the
// order of the changes; after a reconnect they arrive in any order.
func (w *waiter) ownWatch() *node {
	x, ok := w.watches[path.Base(w.a.path)]
	if !ok || x.conn == 0 || x.conn != w.a.s.connNumber() || !x.silent() || uint64(x.stat.Czxid) != w.a.token {
		return nil
	}
	return &x
}
