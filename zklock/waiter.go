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

	view    *view
	place   child           // of the attempt
	turn    chan struct{}   // closed when the waiter is the first of the process; guarded by view.mu
	watches map[string]node // by name: the last two places in front, and the own one
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
			a.slots = a.req.Share.FreeSlots(nil) // nothing was beside it
			return a.grant(start, nil), nil
		}
	}
	w.queued, w.lastContact = true, time.Now()
	w.place, _ = parseChild(path.Base(a.path))
	w.watches = map[string]node{}
	a.s.enterView(w)
	g, err := w.await(ctx)
	a.s.leaveView(w, g != nil)
	return g, err
}

// await waits until the waiter is the first of the process, and then in the queue.
func (w *waiter) await(ctx context.Context) (*grant, error) {
	first := isReady(w.turn)
	if !first {
		w.reportWaiting(newHolder(w.view.holder(), node{}))
	}
	select {
	case <-w.turn:
	case <-w.a.s.done:
		return nil, w.a.s.endErr()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w.place.kind != permitsNode {
		return w.advance(ctx)
	}
	if !first { // the one before may have assigned slots to this one too
		if g, err := w.assigned(ctx); g != nil || err != nil {
			return g, err
		}
	}
	return w.awaitShare(ctx)
}

// advance watches the attempt's own node and the last two places in front of it. When one of
// those is gone it finds out which of the others are left, while the predecessor holds the
// lock. So no other is left when the predecessor is deleted, and the attempt is granted without
// a request, if the watch of its own node proves that this still exists.
//
// A reader does the same with the exclusive places in front of it and no others. What it shows of
// them holds as well: they only become fewer.
func (w *waiter) advance(ctx context.Context) (*grant, error) {
	a := w.a
	for check := false; ; { // check: places that are not watched may be gone
		front, far, known := w.view.front(w.place)
		if w.place.kind == readerNode && slices.ContainsFunc(front, func(c child) bool { return c.kind == permitsNode }) {
			return w.awaitShare(ctx)
		}
		near := front[max(0, len(front)-2):]
		switch rest := front[:len(front)-len(near)]; {
		case !known, check && far:
			q, _, err := a.position(ctx)
			if err != nil {
				return nil, err
			}
			w.view.set(q)
			check = false
			continue
		case check && len(rest) > 0:
			if err := w.removeGone(ctx, w.unwatched(front)); err != nil {
				return nil, err
			}
			check = false
			continue
		}
		gone, err := w.watch(ctx, near)
		switch {
		case err != nil:
			return nil, err
		case gone:
			check = true
			continue
		case len(front) == 0:
			if proof := w.ownWatch(); proof != nil {
				return a.grant(time.Now(), proof), nil
			}
			delete(w.watches, w.place.node) // of an earlier connection
			continue
		}
		holder := w.view.holder()
		w.reportWaiting(newHolder(holder, w.watches[holder.node]))
		if check, err = w.awaitEvent(ctx, near); err != nil {
			return nil, err
		}
	}
}

// unwatched returns the places that are not watched: the caller reads them together, in one round trip.
func (w *waiter) unwatched(places []child) []child {
	return slices.DeleteFunc(slices.Clone(places), func(c child) bool { _, ok := w.watches[c.node]; return ok })
}

// removeGone reads places and removes those from the view that are gone.
func (w *waiter) removeGone(ctx context.Context, places []child) error {
	nodes, err := w.a.s.readAll(ctx, w.a.dir, nodeNames(places), w.a.s.get)
	for i, n := range nodes {
		if n.stat == nil {
			w.view.remove(places[i])
		}
	}
	return err
}

// watch watches the own node and near, and nothing else. It returns whether one of near is
// gone, or does not stop a reader any more. It is an error if the own node is gone.
func (w *waiter) watch(ctx context.Context, near []child) (gone bool, err error) {
	names := append(nodeNames(near), w.place.node)
	maps.DeleteFunc(w.watches, func(n string, _ node) bool { return !slices.Contains(names, n) })
	names = slices.DeleteFunc(names, func(n string) bool { _, ok := w.watches[n]; return ok })
	nodes, err := w.a.s.readAll(ctx, w.a.dir, names, w.a.s.watch)
	if err != nil {
		return false, err
	}
	for i, n := range nodes {
		w.watches[names[i]] = n
	}
	for _, c := range near {
		switch n := w.watches[c.node]; {
		case n.stat == nil:
			w.view.remove(c)
			gone = true
		case w.place.kind == readerNode && contentOf(c.kind, n.data).share == backend.Reader:
			w.view.setReader(c)
			gone = true
		}
	}
	if w.watches[w.place.node].stat == nil {
		return gone, w.a.nodeDeleted()
	}
	return gone, nil
}

// awaitEvent waits for an event of the own node or one of near. It returns whether one of
// near is gone.
func (w *waiter) awaitEvent(ctx context.Context, near []child) (gone bool, err error) {
	last := near[len(near)-1]
	events := [2]<-chan zk.Event{w.watches[last.node].event, w.watches[near[0].node].event} // may be the same
	var e zk.Event
	which := last
	select {
	case e = <-events[0]:
	case e = <-events[1]:
		which = near[0]
	case e = <-w.watches[w.place.node].event:
		which = w.place
	case <-w.a.s.done:
		return false, w.a.s.endErr()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	delete(w.watches, which.node)
	if gone = e.Type == zk.EventNodeDeleted && which != w.place; gone {
		w.view.remove(which)
	}
	return gone, nil
}

// reportWaiting calls OnWait once. Only the first waiters of the queue have read the holder's
// node, and so more than its owner id.
func (w *waiter) reportWaiting(holder backend.Holder) {
	if w.reported || w.a.req.OnWait == nil {
		return
	}
	w.reported = true
	w.a.req.OnWait(&backend.LockedError{Holder: holder})
}

// ownWatch returns the watch of the waiter's own node if it proves that the node
// existed when the last event arrived, else nil. Events of one connection arrive in the
// order of the changes; after a reconnect they arrive in any order.
func (w *waiter) ownWatch() *node {
	x, ok := w.watches[w.place.node]
	if !ok || x.conn != w.a.s.connNumber() || !x.silent() || uint64(x.stat.Czxid) != w.a.token {
		return nil
	}
	return &x
}
