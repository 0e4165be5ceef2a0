package zklock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend/places"
)

// watcher is a watch of a node, or of the children of a lock's node. The server reports one change: then the watch has
// ended. It also ends with its connection, since after that events may come in another order than the changes.
type watcher struct {
	id, path string
	changed  func(places.Place, places.Change)
	children bool

	mu    sync.Mutex // of a watch of children: one request at a time
	known []child    // that have not ended
}

// report reports a change of a place. No other has the same ID.
func (w *watcher) report(id string, c places.Change) {
	w.changed(places.Place{ID: id, Version: places.All}, c)
}

func (ss *session) add(w *watcher) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	all := ss.watchers[w.path]
	if all == nil {
		all = map[*watcher]struct{}{}
		ss.watchers[w.path] = all
	}
	all[w] = struct{}{}
}

// remove returns false if the watch had ended.
func (ss *session) remove(w *watcher) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	_, ok := ss.watchers[w.path][w]
	if delete(ss.watchers[w.path], w); len(ss.watchers[w.path]) == 0 {
		delete(ss.watchers, w.path)
	}
	return ok
}

// take returns the watches that an event concerns, and removes those that it ends.
func (ss *session) take(e zk.Event) (all []*watcher) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for w := range ss.watchers[e.Path] {
		if w.children == (e.Type == zk.EventNodeChildrenChanged) || e.Type == zk.EventNodeDeleted {
			all = append(all, w)
			if !w.children {
				delete(ss.watchers[e.Path], w)
			}
		}
	}
	if len(ss.watchers[e.Path]) == 0 {
		delete(ss.watchers, e.Path)
	}
	return all
}

// onChange reports an event of a node. The library calls it in the order of the events.
func (ss *session) onChange(e zk.Event) {
	for _, w := range ss.take(e) {
		switch {
		case w.children:
			ss.s.life.Go(func() { w.again(ss) })
		case e.Type == zk.EventNodeDeleted:
			w.report(w.id, places.Ended)
		default:
			w.report(w.id, places.Updated)
			w.report(w.id, places.Interrupted)
		}
	}
}

// interrupt ends all watches.
func (ss *session) interrupt() {
	ss.mu.Lock()
	all := ss.watchers
	ss.watchers = map[string]map[*watcher]struct{}{}
	ss.mu.Unlock()
	for _, ws := range all {
		for w := range ws {
			w.report(w.id, places.Interrupted)
		}
	}
}

// Watch implements places.Service. The request that sets a watch also reads the node.
func (s *service) Watch(
	ctx context.Context, key string, p places.Place, changed func(places.Place, places.Change),
) (stop func(), checked bool, err error) {
	dir := s.lockNode(key)
	ss, behind, err := s.home(ctx)
	if err == nil && behind {
		err = ss.sync(ctx)
	}
	if err != nil {
		return nil, false, err
	}
	w := &watcher{id: p.ID, path: p.ID, changed: changed}
	if p.ID == "" {
		w.path, w.children = dir, true
	}
	ss.add(w) // before the request: an event may arrive before this goroutine has its reply
	stop = func() { ss.remove(w) }
	if w.children {
		err = w.list(ctx, ss)
	} else {
		var n node
		n, err = ss.watch(ctx, p.ID)
		if c := n.change(&p); err == nil && c != places.Unchanged && (c == places.Updated || ss.remove(w)) {
			w.report(p.ID, c)
		}
	}
	if err != nil {
		stop()
		return nil, false, err
	}
	return stop, true, nil
}

// list reads the children of a lock's node, watches them, and reports which have ended.
func (w *watcher) list(ctx context.Context, ss *session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := ss.watchChildren(ctx, w.path)
	if err != nil {
		return err
	}
	now := inOrder(l.names)
	left := map[string]bool{}
	for _, c := range now {
		left[c.node] = true
	}
	// Who is behind is reported first: no event shows that a place is the first if that has ended too.
	for _, c := range slices.Backward(w.known) {
		if !left[c.node] {
			w.report(w.path+"/"+c.node, places.Ended)
		}
	}
	w.known = now
	return nil
}

// again lists the children after an event.
func (w *watcher) again(ss *session) {
	ctx, cancel := withLimit(ss.ending, ss.s.opt.openTimeout)
	defer cancel()
	if err := w.list(ctx, ss); err != nil && ss.remove(w) {
		w.report(w.id, places.Interrupted)
	}
}

// inOrder returns the places among the children of a lock's node, in the order in which they are served.
func inOrder(nodes []string) []child {
	q := make([]child, 0, len(nodes))
	for _, n := range nodes {
		if c, ok := parseChild(n); ok && c.inOrder() {
			q = append(q, c)
		}
	}
	slices.SortFunc(q, func(a, b child) int { return cmp.Compare(a.seq, b.seq) })
	return q
}

// holdPause is for how long a place holds before it is watched: most are removed sooner, and a watch costs a request.
const holdPause = 50 * time.Millisecond

var _ places.HoldWatcher = (*service)(nil)

// Held implements places.HoldWatcher. It watches the node, as long as there is one of the attempt.
func (s *service) Held(p places.Place) {
	time.AfterFunc(holdPause, func() { s.life.Go(func() { s.watchHeld(p) }) })
}

func (s *service) watchHeld(p places.Place) {
	s.mu.Lock()
	e := s.ownerOf(&p)
	s.mu.Unlock()
	if e == nil {
		return
	}
	select {
	case e.busy <- struct{}{}:
		e.unlock()
	default: // it is about to be removed
		s.Held(p)
		return
	}
	w := &watcher{path: p.ID, changed: func(_ places.Place, c places.Change) {
		switch c {
		case places.Ended:
			s.events.Broken(p.Owner)
		case places.Interrupted:
			s.Held(p)
		}
	}}
	e.ss.add(w)
	ctx, cancel := withLimit(e.ss.ending, s.opt.openTimeout)
	defer cancel()
	if n, err := e.ss.watch(ctx, p.ID); (err != nil || n.stat == nil) && e.ss.remove(w) {
		if err != nil {
			s.Held(p) // it is watched when the service answers again
		} else {
			s.events.Broken(p.Owner)
		}
	}
}

// WatchChanges watches the children of the node of a lock, or until there is such a node its creation. A watch that has
// not fired stays at the server until it fires or the session ends.
func (b *Backend) WatchChanges(ctx context.Context, key string, changed func()) error {
	return b.svc.do(ctx, func(ss *session) error {
		dir := b.svc.lockNode(key)
		for {
			l, err := ss.watchChildren(ctx, dir)
			if err != nil {
				return err
			}
			changed()
			select {
			case e := <-l.event:
				if e.Err != nil { // it is not watched any more
					return explain(e.Err, dir)
				}
			case <-ss.done:
				return ss.endErr()
			case <-ctx.Done():
				return endOf(ctx)
			}
		}
	})
}
