package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// awaitShare waits for permits, and for a reader behind permits. It watches the place directly
// in front as long as the attempt cannot be admitted before that one: that is the case behind
// an exclusive node, and behind permits that wait. They are deleted or written to when it is
// time to look again. An attempt directly behind a holder watches the children of the lock's
// node, of which there is one in a queue.
func (w *waiter) awaitShare(ctx context.Context) (*grant, error) {
	a := w.a
	for whole := false; ; { // whole: watch the children
		asked := time.Now()
		q, i, event, err := w.readQueue(ctx, whole)
		if err != nil {
			return nil, err
		}
		st, err := a.judge(ctx, q, i, &w.view.permits)
		if err == nil && st.fits && a.req.Share.Capacity > 0 {
			err = a.assign(ctx, q, st, &w.view.permits)
		}
		switch {
		case errors.Is(err, errQueueChanged):
			continue
		case errors.Is(err, backend.ErrInvalid):
			return nil, a.leaveQueue(ctx, err)
		case err != nil:
			return nil, err
		case st.fits:
			return a.grant(asked, nil), nil
		}
		w.reportWaiting(firstOf(q, st).holder())
		switch follows := w.follows(st, q[i-1], i-1); {
		case follows:
			whole = false
			pred, err := a.s.watch(ctx, a.dir+"/"+q[i-1].node)
			if err != nil {
				return nil, err
			}
			if pred.stat == nil || contentOf(q[i-1].kind, pred.data).slots != nil {
				continue // it has changed since
			}
			event = pred.event
		case !whole:
			whole = true
			continue
		}
		written, err := w.awaitOne(ctx, event)
		if err != nil {
			return nil, err
		}
		if written { // most likely the attempt's own node was written to as well
			if g, err := w.assigned(ctx); g != nil || err != nil {
				return g, err
			}
		}
	}
}

// follows reports whether the attempt cannot be admitted before the place at index i, which is
// directly in front, is deleted or written to.
func (w *waiter) follows(st standing, pred child, i int) bool {
	if len(st.front) == 0 || st.front[len(st.front)-1].seq != pred.seq {
		return true // it is gone
	}
	last := st.front[len(st.front)-1]
	switch pred.kind {
	case exclusiveNode:
		return last.share.Exclusive()
	case permitsNode: // the first of a queue holds, and may never be written to
		return i > 0 && last.slots == nil && (st.blocked || last.share.Capacity == w.a.req.Share.Capacity)
	}
	return false
}

// readQueue reads the queue, and finds the attempt in it. whole: it watches the children.
func (w *waiter) readQueue(ctx context.Context, whole bool) (q []child, i int, event <-chan zk.Event, err error) {
	if !whole {
		q, i, err = w.a.position(ctx)
	} else {
		var l listing
		if l, err = w.a.s.list(ctx, w.a.dir, true); err == nil {
			q, event = queue(l.names), l.event
			i, err = w.a.find(q)
		}
	}
	if err == nil {
		w.view.set(q)
	}
	return q, i, event, err
}

// assigned returns the grant if slots were assigned to the attempt by another one.
func (w *waiter) assigned(ctx context.Context) (*grant, error) {
	if w.a.req.Share.Capacity == 0 {
		return nil, nil
	}
	asked := time.Now()
	own, known := w.view.permits.get(w.place)
	if !known {
		read, err := w.a.s.readContenders(ctx, w.a.dir, w.view.toRead(w))
		if err != nil {
			return nil, err
		}
		if len(read) == 0 || read[0].seq != w.place.seq {
			return nil, w.a.nodeDeleted()
		}
		own = read[0]
		w.view.noteAssigned(read)
	}
	if own.slots == nil {
		return nil, nil
	}
	w.a.slots = own.slots
	return w.a.grant(asked, nil), nil
}

// toRead returns the place of a waiter, and the next ones of its lane if the one before it has
// found that another process has assigned slots to it: most likely it did so to several.
func (v *view) toRead(w *waiter) []child {
	v.mu.Lock()
	defer v.mu.Unlock()
	places := []child{w.place}
	for _, next := range v.waiters {
		if v.several && len(places) < 8 && next.lane() == w.lane() && next.place.seq > w.place.seq {
			places = append(places, next.place)
		}
	}
	return places
}

// noteAssigned notes what was read of toRead.
func (v *view) noteAssigned(read []contender) {
	v.permits.keep(nil, read)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.several = read[0].slots != nil
}

// awaitOne waits for an event. It returns whether a node was written to.
func (w *waiter) awaitOne(ctx context.Context, event <-chan zk.Event) (written bool, err error) {
	select {
	case e := <-event:
		return e.Type == zk.EventNodeDataChanged, nil
	case <-w.a.s.done:
		return false, w.a.s.endErr()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// firstOf returns the first of the queue, as far as it was read.
func firstOf(q []child, st standing) contender {
	if i := slices.IndexFunc(st.front, func(c contender) bool { return c.seq == q[0].seq }); i >= 0 {
		return st.front[i]
	}
	return contender{child: q[0]}
}

// tryShare makes a shared attempt that is in the queue, without waiting.
func (a *attempt) tryShare(ctx context.Context) (granted bool, err error) {
	for {
		q, i, err := a.position(ctx)
		if err != nil {
			return false, err
		}
		st, err := a.judge(ctx, q, i, nil)
		if err == nil && st.fits && a.req.Share.Capacity > 0 {
			err = a.assign(ctx, q, st, nil)
		}
		switch {
		case errors.Is(err, errQueueChanged):
			continue
		case errors.Is(err, backend.ErrInvalid):
			return false, a.leaveQueue(ctx, err)
		case err != nil || st.fits:
			return err == nil, err
		}
		a.b.setHeld(a.req.Key, true)
		return false, a.withdraw(ctx, q)
	}
}
