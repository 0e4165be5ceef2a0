package places

import (
	"context"
	"errors"
	"sync"
)

// watch is a watch of a place. It counts when the place has been checked after it began.
type watch struct {
	stop    func()
	checked bool
}

func (l *line) unwatch(id string, w *watch) {
	delete(l.watches, id)
	if w.stop != nil {
		w.stop()
	}
}

// targets returns what an attempt watches. The zero Place stands for all places of the key.
func (l *line) targets(a *attempt) []Place {
	before := l.before(a)
	if a.req.Share.Capacity > 0 {
		q := Queue{Places: before}
		if len(before)-q.Holders() <= 1 {
			return []Place{{}}
		}
		return []Place{before[len(before)-1], a.place}
	}
	all := []Place{a.place}
	for i := len(before) - 1; i >= 0 && len(all) < nearest; i-- {
		if a.blockedBy(&before[i]) {
			all = append(all, before[i])
		}
	}
	return all
}

// noticed reports whether the end of a place is noticed by a watch.
func (l *line) noticed(p *Place) bool {
	if l.followed() {
		return true
	}
	for _, id := range []string{p.ID, ""} {
		if w := l.watches[id]; w != nil && w.checked {
			return true
		}
	}
	return false
}

// watched reports whether the end of a place of another attempt is noticed: also if it is one of this process.
func (l *line) watched(p *Place) bool {
	a := l.b.attempts[p.Owner]
	return a != nil && p.ID != "" && a.place.ID == p.ID || l.noticed(p)
}

// watch begins to watch places, and then checks them.
func (l *line) watch(ctx context.Context, places []Place) error {
	b := l.b
	made, errs := make([]*watch, len(places)), make([]error, len(places))
	checked := make([]bool, len(places))
	b.mu.Lock()
	for i, p := range places {
		made[i] = &watch{}
		l.watches[p.ID] = made[i]
	}
	b.mu.Unlock()
	var begun sync.WaitGroup
	for i, p := range places {
		begun.Go(func() {
			stop, done, err := b.svc.Watch(ctx, l.key, p, l.event)
			b.mu.Lock()
			defer b.mu.Unlock()
			made[i].stop, checked[i], errs[i] = stop, done, err
			switch current := l.watches[p.ID] == made[i]; {
			case err != nil && current:
				delete(l.watches, p.ID)
			case err == nil && !current: // it was interrupted
				stop()
			}
		})
	}
	begun.Wait()
	var changes []Change
	err := errors.Join(errs...)
	var all []Place
	every := false // all places of the key are watched
	for i, p := range places {
		if every = every || p.ID == ""; p.ID != "" && !checked[i] {
			all = append(all, p)
		}
	}
	if err == nil && len(all) > 0 {
		changes, err = b.svc.Check(ctx, all)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range made {
		if w.checked = err == nil; err != nil && l.watches[places[i].ID] == w {
			l.unwatch(places[i].ID, w)
		}
	}
	if err != nil {
		return err
	}
	l.reread = l.reread || every
	for i, c := range changes {
		l.changed(all[i].as(c))
	}
	return nil
}
