package places

import (
	"context"
	"slices"
	"time"
)

const (
	maxViewed = 16          // sessions in a queue that processes begin to follow: each of them gets each event
	recount   = 256         // places that are put before the sessions are counted again
	restTime  = time.Second // how long a line without waiters still follows its queue
)

// view is for a line that follows its queue: events keep that complete, so the line neither reads nor checks places.
type view struct {
	stop     func()
	complete bool    // the queue is that of the Service, but for events that are on their way
	early    []event // those before that
	puts     int     // since the sessions were counted
	outdated bool    // a place has changed, of which the event is on its way
}

// event is what a Viewer reports.
type event struct {
	place  Place
	change Change
}

// crowds reports whether more than n sessions have places in a queue, or may have: of those before the first place that
// is known, each place may have its own.
func (l *line) crowds(q *Queue, n int) bool {
	if _, ok := l.b.svc.(Viewer); !ok {
		return true
	}
	if q.More {
		return q.Count == 0 || q.Count > n
	}
	sessions := map[string]struct{}{}
	for i := range q.Places {
		if sessions[q.Places[i].Session] = struct{}{}; len(sessions) > n {
			return true
		}
	}
	return false
}

// followed reports whether the queue is complete.
func (l *line) followed() bool { return l.view != nil && l.view.complete }

// gone reports whether a waiter has no place any more.
func (l *line) gone(a *attempt) bool {
	if !l.followed() || a.place.Order > l.upTo {
		return false
	}
	i, found := l.queue.find(a.place.Order)
	return !found || l.queue.Places[i].ID != a.place.ID
}

// nextFollowed is next for a line that follows its queue.
func (l *line) nextFollowed() func(context.Context) error {
	v, head := l.view, l.waiters[0]
	switch {
	case !l.followed():
		return l.follow
	case !v.outdated && head.req.Share.Capacity > 0 && l.fits(head):
		return l.record
	}
	v.outdated = false
	return l.wait
}

// rests returns what a line without waiters does: it follows its queue for a while, as the next attempt is likely.
func (l *line) rests() func(context.Context) error {
	left := time.Until(l.emptied.Add(restTime))
	if !l.followed() || left <= 0 {
		return nil
	}
	return func(context.Context) error {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-l.wake:
		case <-timer.C:
		case <-l.b.life.Context().Done():
		}
		return nil
	}
}

// follow begins to follow the queue.
func (l *line) follow(ctx context.Context) error {
	b, v := l.b, &view{}
	b.mu.Lock()
	l.unview()
	l.view = v
	b.mu.Unlock()
	since, stop, err := b.svc.(Viewer).View(ctx, l.key, func(p Place, c Change) { l.viewed(v, event{p, c}) })
	var q Queue
	if err == nil {
		b.mu.Lock()
		v.stop = stop
		b.mu.Unlock()
		q, err = b.svc.Read(ctx, l.key, All, 0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.view != v { // it was interrupted
		if stop != nil {
			stop()
		}
		return err
	}
	if err != nil {
		l.unview()
		return err
	}
	l.queue, l.upTo, l.reread, l.unsure = q, since, false, false
	if n := len(q.Places); n > 0 {
		l.upTo = max(l.upTo, q.Places[n-1].Order)
	}
	for i := range q.Places {
		l.refresh(&q.Places[i])
	}
	v.complete = true
	for _, e := range v.early {
		l.apply(e)
	}
	v.early = nil
	for id, w := range l.watches {
		l.unwatch(id, w)
	}
	l.count(maxViewed)
	return nil
}

// unview ends the view, if there is one. b.mu is held.
func (l *line) unview() {
	if l.view != nil && l.view.stop != nil {
		l.view.stop()
	}
	l.view = nil
}

// count ends the view if too many sessions have places.
func (l *line) count(most int) {
	l.view.puts = 0
	if l.crowded = l.crowds(&l.queue, most); l.crowded {
		l.unview()
		l.signal()
	}
}

// viewed takes an event of a view.
func (l *line) viewed(v *view, e event) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	switch {
	case l.view != v:
	case e.change == Interrupted:
		l.unview()
		l.signal()
	case !v.complete:
		v.early = append(v.early, e)
	default:
		l.apply(e)
		l.grant()
		if len(l.waiters) > 0 && l.waiters[0].req.Share.Capacity > 0 {
			l.signal() // slots may have to be recorded
		}
		if v.puts > recount {
			l.count(2 * maxViewed)
		}
	}
}

// apply changes the queue as an event says. One that is older than what was read changes nothing.
func (l *line) apply(e event) {
	p := e.place
	if i := l.queue.position(&p); i >= 0 {
		old := l.queue.Places[i]
		if p.Version <= old.Version {
			return
		}
		l.queue.remove(i)
		if a := l.attempt(&old); a != nil && e.change == Ended {
			a.wakeWith(errRequeue)
		}
	}
	if e.change == Ended {
		return
	}
	i, _ := l.queue.find(p.Order)
	l.queue.Places = slices.Insert(l.queue.Places, i, p)
	l.upTo = max(l.upTo, p.Order)
	l.view.puts++
	l.refresh(&p)
}

// refresh updates a waiter from its place.
func (l *line) refresh(p *Place) {
	if a := l.attempt(p); a != nil {
		a.place.Version, a.place.Slots = p.Version, p.Slots
	}
}

// attempt returns the attempt of this process that waits with a place.
func (l *line) attempt(p *Place) *attempt {
	a := l.b.attempts[p.Owner]
	if a == nil || a.state != waiting || a.place.ID != p.ID || a.place.Order != p.Order {
		return nil
	}
	return a
}
