package places

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const (
	maxRecorded = 100 // places whose slots one request records
	maxEntering = 16  // attempts for one key that put a place and read the queue; a line reads for more
	maxPrepared = 4   // the first attempts of a line, whose watches are there before it is their turn
	minVerified = 4   // places that are checked one by one, also in a short queue
	nearest     = 3   // of an exclusive attempt and before it, which it reads if no other one waits with it
)

// line has the attempts of this process that wait for one key. It acts in one goroutine, as long as there are any.
// Everything is guarded by Backend.mu.
type line struct {
	b   *Backend
	key string

	waiters []*attempt        // in the order of their places
	queue   Queue             // what was read, without what has ended since
	upTo    uint64            // the order up to which it was read; zero: not
	reread  bool              // something has changed that the events do not say
	unsure  bool              // a watched place has ended: others before the first waiter may have ended too
	reading bool              // a request that reads is under way
	ended   []Place           // the places that have ended meanwhile
	watches map[string]*watch // by the id of the place
	wake    chan struct{}     // capacity 1
	failing time.Time         // the first of the failures since the last answer

	view    *view     // nil if the line does not follow the queue
	crowded bool      // too many sessions have places for that, or the Service has no views
	emptied time.Time // when the last waiter left
}

// entry returns how an attempt that waits puts its place. The caller calls entered after an Enter.
func (b *Backend) entry(key string, share backend.Share) Mode {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[key]
	if l != nil && (len(l.waiters) > 0 || !l.queue.Fits(share)) || b.entering[key] == maxEntering {
		return Follow
	}
	b.entering[key]++
	return Enter
}

func (b *Backend) entered(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entering[key]--; b.entering[key] == 0 {
		delete(b.entering, key)
	}
}

// enter adds an attempt to the line of its key. q is what its request has read. b.mu is held.
func (b *Backend) enter(a *attempt, mode Mode, q Queue) *line {
	l := b.lines[a.req.Key]
	if l == nil {
		l = &line{b: b, key: a.req.Key, watches: map[string]*watch{}, wake: make(chan struct{}, 1)}
		if mode != Follow {
			l.queue, l.upTo = q, a.place.Order
		}
		l.crowded = l.crowds(&l.queue, maxViewed)
		b.lines[l.key] = l
		if !b.life.Go(l.run) {
			delete(b.lines, l.key)
			return l
		}
	}
	i, _ := slices.BinarySearchFunc(l.waiters, a.place.Order, func(w *attempt, order uint64) int {
		return cmp.Compare(w.place.Order, order)
	})
	l.waiters = slices.Insert(l.waiters, i, a)
	if i, found := l.queue.find(a.place.Order); found {
		l.refresh(&l.queue.Places[i]) // its slots may have been recorded before the answer to the Put was handled
	}
	l.signal()
	return l
}

// leave removes an attempt from the line. It returns false if it is not in it. b.mu is held.
func (l *line) leave(a *attempt) bool {
	i := slices.Index(l.waiters, a)
	if i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		l.emptied = time.Now()
		l.signal()
	}
	return i >= 0
}

func (l *line) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// event is what the Service reports.
func (l *line) event(p Place, c Change) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.changed(p, c)
}

// as returns what an event of a place has, and the event.
func (p *Place) as(c Change) (Place, Change) { return Place{ID: p.ID, Version: p.Order + 1}, c }

// ends reports whether an event of p ends another place: that has the same ID, and is not a later one.
func (p *Place) ends(other *Place) bool { return p.ID == other.ID && other.Order < p.Version }

// changed takes an event, or what a check has found. b.mu is held.
func (l *line) changed(p Place, c Change) {
	if c == Unchanged {
		return
	}
	l.signal()
	w := l.watches[p.ID]
	if w != nil && c != Updated {
		l.unwatch(p.ID, w)
	}
	if c == Ended && l.reading {
		l.ended = append(l.ended, p)
	}
	if len(l.waiters) == 0 || c == Interrupted {
		return
	}
	head := l.waiters[0]
	if c == Updated {
		l.reread = l.reread || !head.req.Share.Exclusive()
		return
	}
	var ended *attempt // of this process
	if i := l.queue.Index(p.ID); i >= 0 && p.ends(&l.queue.Places[i]) {
		ended = l.attempt(&l.queue.Places[i])
		l.queue.remove(i)
		l.reread = l.reread || l.queue.More
		l.unsure = l.unsure || w != nil && len(l.unwatched(head)) > 0
	}
	for i := len(l.waiters) - 1; ended == nil && i >= 0 && l.waiters[i].place.Order > l.upTo; i-- {
		if p.ends(&l.waiters[i].place) {
			ended = l.waiters[i]
		}
	}
	if ended != nil {
		ended.wakeWith(errRequeue)
	}
	l.grant()
}

// grant grants the first attempts that no known place keeps from holding the key, if all places before them are known and
// the end of their own would have been noticed. b.mu is held.
func (l *line) grant() {
	for len(l.waiters) > 0 {
		head := l.waiters[0]
		switch {
		case l.gone(head):
			head.wakeWith(errRequeue)
		case !l.fits(head) || !l.noticed(&head.place) || head.req.Share.Capacity > 0 && len(head.place.Slots) == 0:
			return
		default:
			head.wakeWith(nil)
		}
	}
}

// fits reports whether no known place keeps an attempt from holding the key, and all places before it are known.
func (l *line) fits(a *attempt) bool {
	front := Queue{Places: l.before(a), More: l.queue.More}
	return a.place.Order <= l.upTo && front.Fits(a.req.Share)
}

// blockedBy reports whether an attempt cannot hold the key before a place has ended.
func (a *attempt) blockedBy(p *Place) bool {
	return a.req.Share != backend.Reader || p.Share != backend.Reader
}

// before returns the places before an attempt, as far as they are known.
func (l *line) before(a *attempt) []Place {
	i, _ := l.queue.find(a.place.Order)
	return l.queue.Places[:i]
}

// unwatched returns the places that keep an attempt from holding the key, and whose end would not be noticed.
func (l *line) unwatched(a *attempt) (all []Place) {
	for _, p := range l.before(a) {
		if a.blockedBy(&p) && !l.watched(&p) {
			all = append(all, p)
		}
	}
	return all
}

// verify finds out which places have ended. If they are few this costs less than to read a long queue.
func (l *line) verify(ctx context.Context, all []Place) error {
	changes, err := l.b.svc.Check(ctx, all)
	if err != nil {
		return err
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.unsure = false
	for i, c := range changes {
		l.changed(all[i].as(c))
	}
	return nil
}

// run acts for the first waiter until there is none.
func (l *line) run() {
	b, pause := l.b, time.Duration(0)
	for {
		b.mu.Lock()
		act := l.next()
		if act == nil {
			l.unview()
			for id, w := range l.watches {
				l.unwatch(id, w)
			}
			delete(b.lines, l.key)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		limited, cancel := context.WithTimeout(b.life.Context(), b.cfg.RequestTimeout)
		err := act(limited)
		cancel()
		if err == nil {
			pause, l.failing = 0, time.Time{}
			continue
		}
		l.failed(err)
		pause = min(max(2*pause, 20*time.Millisecond), time.Second)
		call.Sleep(b.life.Context(), pause)
	}
}

// next grants what needs no request, and returns what the line does next; nil if there are no waiters. b.mu is held.
func (l *line) next() func(context.Context) error {
	l.grant()
	switch {
	case l.b.life.Context().Err() != nil:
		return nil
	case len(l.waiters) == 0:
		return l.rests()
	case !l.crowded:
		return l.nextFollowed()
	}
	head, first := l.waiters[0], l.waiters[:min(len(l.waiters), maxPrepared)]
	if l.reread || head.place.Order > l.upTo {
		return l.read
	}
	first = slices.DeleteFunc(slices.Clone(first), func(w *attempt) bool { return w.place.Order > l.upTo })
	if l.queue.More && (head.req.Share.Capacity > 0 || len(l.targets(head)) == 1) {
		return l.read // what was read for another attempt says nothing of those before this one
	}
	if l.unsure {
		switch others := l.unwatched(head); {
		case len(others) > max(minVerified, len(l.queue.Places)/64):
			return l.read
		case len(others) > 0:
			return func(ctx context.Context) error { return l.verify(ctx, others) }
		}
		l.unsure = false
	}
	var missing []Place
	wanted := map[string]bool{}
	for _, w := range first {
		for _, p := range l.targets(w) {
			own := p.ID == w.place.ID
			if !wanted[p.ID] && (own && !l.noticed(&p) || !own && !l.watched(&p)) {
				missing = append(missing, p)
			}
			wanted[p.ID] = true
		}
	}
	for id, w := range l.watches {
		if !wanted[id] {
			l.unwatch(id, w)
		}
	}
	switch fits := l.fits(head); {
	case fits && head.req.Share.Capacity > 0:
		return l.record
	case fits:
		return l.read // which serves those behind it too
	case len(missing) > 0:
		return func(ctx context.Context) error { return l.watch(ctx, missing) }
	}
	return l.wait
}

func (l *line) wait(context.Context) error {
	select {
	case <-l.wake:
	case <-l.b.life.Context().Done():
	}
	return nil
}

// failed ends the attempts for whose TTL the service has failed.
func (l *line) failed(err error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.failing.IsZero() {
		l.failing = time.Now()
	}
	for _, w := range slices.Clone(l.waiters) {
		if time.Since(l.failing) >= w.req.TTL {
			w.wakeWith(backend.Uncertain(err))
		}
	}
}

// read reads the queue up to the last waiter, and grants those that hold by it.
func (l *line) read(ctx context.Context) error {
	b, last := l.b, 0
	b.mu.Lock()
	if len(l.waiters) == 0 {
		b.mu.Unlock()
		return nil
	}
	upTo := l.waiters[len(l.waiters)-1].place.Order
	if len(l.waiters) == 1 && l.waiters[0].req.Share.Exclusive() {
		last = nearest
	}
	l.reread, l.unsure, l.reading, l.ended = false, false, true, nil
	b.mu.Unlock()
	q, err := b.svc.Read(ctx, l.key, upTo, last)
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.reading = false; err != nil {
		l.reread = true
		return err
	}
	for _, p := range l.ended {
		i := q.Index(p.ID)
		l.reread = l.reread || i >= 0 && p.ends(&q.Places[i]) // after the queue was read
	}
	l.queue, l.upTo = q, upTo
	if last == 0 {
		l.crowded = l.crowds(&q, maxViewed)
	}
	held := q.Holders()
	for _, w := range slices.Clone(l.waiters) {
		i, found := q.find(w.place.Order)
		switch {
		case w.place.Order > upTo:
		case !found || q.Places[i].ID != w.place.ID:
			w.wakeWith(errRequeue)
		default:
			w.place.Version, w.place.Slots = q.Places[i].Version, q.Places[i].Slots
			if i < held && (w.req.Share.Capacity == 0 || len(w.place.Slots) > 0) {
				w.wakeWith(nil)
			}
		}
	}
	return nil
}

// record records the slots of the holders that have none.
func (l *line) record(ctx context.Context) error {
	b := l.b
	b.mu.Lock()
	all := l.queue.Unrecorded(maxRecorded)
	b.mu.Unlock()
	done, err := len(all) > 0, error(nil)
	if done {
		done, err = b.svc.Update(ctx, all)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !done || err != nil {
		l.reread = true // they are not as they were read
		if l.view != nil && err == nil {
			l.view.outdated = true
		}
		return err
	}
	for _, p := range all {
		if i, found := l.queue.find(p.Order); found && l.queue.Places[i].Version < p.Version {
			l.queue.Places[i] = p
		}
		if i := slices.IndexFunc(l.waiters, func(w *attempt) bool { return w.place.Order == p.Order }); i >= 0 {
			w := l.waiters[i]
			w.place.Slots, w.place.Version = p.Slots, p.Version
			w.wakeWith(nil)
		}
	}
	return nil
}
