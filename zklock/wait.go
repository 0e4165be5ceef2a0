package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// wait is one call of Acquire.
type wait struct {
	a      *attempt
	queued bool // the service has once confirmed a place in the queue
	told   bool // OnWait was called
	last   time.Time

	seen map[string]watched // nodes that are watched: of those in front, and the own
	near bool               // the next look may find the own place to be the second
}

// run goes on over lost connections and ended sessions until the service has not
// answered for a TTL.
func (w *wait) run(ctx context.Context) (backend.Grant, error) {
	a := w.a
	pause := 10 * time.Millisecond
	var r retries
	for {
		g, err := w.once(ctx)
		if g != nil {
			return g, nil
		}
		if a.s != nil {
			if t := a.s.clock.lastAnswer(); t.After(w.last) {
				w.last = t
			}
		}
		switch {
		case ctx.Err() != nil, permanent(err):
			return nil, err
		case !w.queued:
			if !r.again(err) { // as in TryAcquire
				return nil, err
			}
			continue
		case time.Since(w.last) >= a.req.TTL:
			return nil, fmt.Errorf("zookeeper: no answer for %v: %w", time.Since(w.last).Round(time.Millisecond), err)
		}
		sleep(ctx, pause)
		pause = min(2*pause, a.req.TTL/12+time.Millisecond, 500*time.Millisecond)
	}
}

// once waits in one session, until an error.
func (w *wait) once(ctx context.Context) (backend.Grant, error) {
	a := w.a
	start := time.Now()
	if w.queued {
		if err := w.resume(ctx); err != nil {
			return nil, err
		}
	} else if err := a.ready(ctx); err != nil {
		return nil, err
	}
	if err := a.find(ctx); err != nil {
		return nil, err
	}
	if a.path == "" {
		alone, err := a.enter(ctx)
		if err != nil {
			return nil, err
		}
		if alone {
			return a.grant(start, nil), nil
		}
	}
	w.seen, w.near = map[string]watched{}, false
	for {
		q, i, err := w.look(ctx)
		switch {
		case err != nil:
			return nil, err
		case i < 0:
			a.path = "" // deleted by somebody: queue anew
			return nil, fmt.Errorf("zookeeper: node %.200q: its child was deleted by somebody", a.dir)
		case i == 0:
			return a.grant(time.Now(), w.own()), nil
		}
		w.queued, w.last = true, time.Now()
		g, err := w.behind(ctx, q, i)
		if g != nil || err != nil {
			return g, err
		}
	}
}

// resume joins a session again, for no longer than the service may be silent.
func (w *wait) resume(ctx context.Context) error {
	within, cancel := context.WithDeadline(ctx, w.last.Add(w.a.req.TTL))
	defer cancel()
	err := w.a.join(within)
	if err == nil {
		err = w.a.s.await(within)
	}
	return err
}

// look returns the queue and the own place in it. Who comes near the head begins
// to watch its own node with the same look, to be ready for the next event.
func (w *wait) look(ctx context.Context) ([]child, int, error) {
	own := func() error { return nil }
	if w.near && w.a.s.connection() != 0 {
		own = w.watch(ctx, base(w.a.path))
	}
	q, i, err := w.a.look(ctx)
	return q, i, errors.Join(err, own())
}

// behind waits until one of the two in front has gone. Both results are nil if it
// must be looked who is in front now.
//
// An own place that was once seen directly behind the first is the first when that
// has gone: nobody enters before it. So nobody has to be asked, only that the own
// node is still there must be known, which its watch tells. To have seen that in
// time each also watches the one before its predecessor, and looks when that has
// gone, while the predecessor holds the lock.
func (w *wait) behind(ctx context.Context, q []child, i int) (backend.Grant, error) {
	a := w.a
	pred, before, own := q[i-1].node, "", base(a.path)
	if i > 1 {
		before = q[i-2].node
	}
	if _, watched := w.seen[own]; !watched && (i > 1 || a.s.connection() == 0) {
		own = ""
	}
	if err := w.watchAll(ctx, pred, before, own); err != nil {
		return nil, err
	}
	w.near = true
	front, ante, mine := w.seen[pred], w.seen[before], w.seen[own]
	if front.stat == nil || before != "" && ante.stat == nil || own != "" && mine.stat == nil {
		return nil, nil // gone meanwhile
	}
	w.tell(q, i, front.data, front.stat)
	silent := time.NewTimer(a.req.TTL)
	defer silent.Stop()
	for {
		select {
		case e := <-front.gone:
			delete(w.seen, pred)
			if mine := w.own(); e.Type == zk.EventNodeDeleted && i == 1 && mine != nil {
				return a.grant(time.Now(), mine), nil
			}
			return nil, nil
		case <-ante.gone: // nil if nobody is there
			delete(w.seen, before)
			return nil, nil
		case <-mine.gone: // nil while the own node is not watched
			delete(w.seen, own)
			return nil, nil
		case <-a.s.over:
			return nil, a.s.ended()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-silent.C:
			left := a.req.TTL - time.Since(a.s.clock.lastAnswer())
			if left <= 0 {
				return nil, errors.New("zookeeper: the server is silent")
			}
			silent.Reset(left)
		}
	}
}

// tell says once who is in front. Only the first in the queue knows more of the
// holder than its name.
func (w *wait) tell(q []child, i int, data []byte, stat *zk.Stat) {
	if w.told || w.a.req.OnWait == nil {
		return
	}
	w.told = true
	h := backend.Holder{}
	h.Owner = q[0].owner
	if i == 1 {
		h.Metadata, h.Token = metadata(data), uint64(stat.Czxid)
	}
	w.a.req.OnWait(&backend.LockedError{Holder: h})
}
