package queue

import (
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// maxJoins is how many readers, or attempts for permits, of a line that have no place yet send a request at a time. The
// service would not grant several exclusive attempts at once, so one of those does.
const maxJoins = 16

// line has the attempts of this process that wait for one key. Everything is guarded by Backend.mu.
type line struct {
	b     *Backend
	users int

	waiters []*attempt // that have a place, in the order of the queue
	turns   []*attempt // that are to send a request, in this order
	asking  int        // requests in flight
	timer   *time.Timer
	poll    schedule
	polls   bool      // there are no events: each waiter asks
	failing time.Time // the first of the failures since the last answer
	backoff time.Duration
	clock   clock
	holder  backend.Holder // that the last answer has shown
}

// enterLine adds an attempt to the line of its key, and lets it send its first request.
func (b *Backend) enterLine(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[a.req.Key]
	if l == nil {
		l = &line{b: b}
		b.lines[a.req.Key] = l
	}
	l.users++
	a.line = l
	l.want(a)
	if !a.turn {
		a.makeWake()
	}
}

func (b *Backend) leaveLine(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := a.line
	l.remove(a)
	if a.turn { // which it has not used
		a.turn = false
		l.asking--
	}
	if i := slices.Index(l.turns, a); i >= 0 {
		l.turns = slices.Delete(l.turns, i, i+1)
	}
	if l.users--; l.users == 0 {
		if l.timer != nil {
			l.timer.Stop()
		}
		delete(b.lines, a.req.Key)
		return
	}
	l.next()
}

// want lets an attempt send a request as soon as it is its turn; if a request of it is in flight, another one.
func (l *line) want(a *attempt) {
	if a.wanted {
		return
	}
	switch {
	case a.turn:
		a.wanted = true
	case l.asking == 0 && len(l.turns) == 0:
		l.give(a)
	default:
		a.wanted = true
		l.turns = append(l.turns, a)
		l.next()
	}
}

// give gives an attempt its turn. Without a queue at the service, one that has just come waits behind the others.
func (l *line) give(a *attempt) {
	if l.b.unordered && a.place == outside && len(l.waiters) > 0 {
		a.wanted, a.place, a.behind = false, queued, &backend.LockedError{Holder: l.holder}
		l.waiters = append(l.waiters, a)
		a.makeWake()
		a.signal()
		return
	}
	l.asking++
	a.turn, a.wanted = true, false
	a.signal()
}

// next gives turns. An attempt with a place has one only if no other request is in flight.
func (l *line) next() {
	for len(l.turns) > 0 {
		a := l.turns[0]
		limit := 1
		if a.place == outside && !a.req.Share.Exclusive() {
			limit = maxJoins
		}
		if l.asking >= limit {
			return
		}
		l.turns[0], l.turns = nil, l.turns[1:]
		l.give(a)
	}
}

// endTurn ends the turn of an attempt.
func (l *line) endTurn(a *attempt) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	a.turn = false
	l.asking--
	if a.wanted {
		l.turns = append(l.turns, a)
	}
	l.next()
}

// failed records that a request of an attempt failed, and returns for how long the service has. Attempts with a place
// end if their TTL has passed in that time.
func (l *line) failed(a *attempt, err error) time.Duration {
	if l.failing.IsZero() {
		l.failing, l.backoff = time.Now(), minBackoff
	}
	since := time.Since(l.failing)
	for _, w := range l.waiters {
		if w != a && since >= w.req.TTL {
			w.fail(backend.Uncertain(err))
		}
	}
	return since
}

// failTurns ends the attempts that have no place and wait for their turn, after a request of one like them failed: in
// an outage they would wait for one another.
func (l *line) failTurns(a *attempt, err error) {
	for _, w := range l.turns {
		if w != a && w.place == outside {
			w.fail(backend.NotExecuted(plain{err}))
		}
	}
}

// plain hides how an error is marked.
type plain struct{ error }

// again lets an attempt ask again after a failure, or the first of the line if that attempt has ended.
func (l *line) again(a *attempt) {
	a.makeWake()
	time.AfterFunc(l.backoff, func() {
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		switch {
		case a.state == waiting || a.state == revoked:
			l.want(a)
		case len(l.waiters) > 0:
			l.want(l.waiters[0])
		}
	})
	l.backoff = min(2*l.backoff, maxBackoff, max(a.req.TTL/12, minBackoff))
}

func (l *line) answered() { l.failing = time.Time{} }

func (l *line) setPolls() {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.polls = true
}

// waits handles an answer that an attempt has a place, and sets when the line asks next.
func (l *line) waits(a *attempt, r Answer) {
	l.answered()
	a.makeWake()
	l.clock.observe(r)
	l.holder = r.Holder
	was := a.place != outside
	a.seen = r.Sent
	if i := slices.Index(l.waiters, a); i < 0 || r.NoPlace {
		if i >= 0 {
			l.waiters = slices.Delete(l.waiters, i, i+1)
		}
		l.waiters = append(l.waiters, a)
	}
	if was && r.NoPlace {
		l.othersDropped(a)
	}
	a.place = queued
	l.poll.answered(a, r, l.polls)
	l.arm()
}

// granted is called when an attempt of the line holds the key: the next one asks when that lease would end. noPlace:
// the attempt had no place any more.
func (l *line) granted(a *attempt, noPlace bool) {
	l.answered()
	if noPlace && a.place == queued {
		l.othersDropped(a)
	}
	l.remove(a)
	l.poll.granted(a, l.polls)
	l.arm()
}

// othersDropped makes the others ask: the service had removed a, and so all attempts of this process.
func (l *line) othersDropped(a *attempt) {
	if a.place == dropped {
		return // they ask already
	}
	for _, w := range l.waiters {
		if w != a {
			w.place = dropped
			l.want(w)
		}
	}
}

func (l *line) remove(a *attempt) {
	i := slices.Index(l.waiters, a)
	switch {
	case i == 0:
		l.waiters[0], l.waiters = nil, l.waiters[1:]
		l.arm()
	case i > 0:
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
}

// arm makes the first waiter ask when that is due.
func (l *line) arm() {
	if l.timer != nil {
		l.timer.Stop()
	}
	if len(l.waiters) == 0 {
		return
	}
	switch left := time.Until(l.poll.due(l.waiters[0])); {
	case left <= 0:
		l.b.life.Go(l.ring)
	case l.timer == nil:
		l.timer = time.AfterFunc(left, l.ring)
	default:
		l.timer.Reset(left)
	}
}

func (l *line) ring() {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	switch {
	case len(l.waiters) == 0:
	case time.Until(l.poll.due(l.waiters[0])) > 0:
		l.arm() // it was set again meanwhile
	case l.polls:
		l.poll.pause = min(2*l.poll.pause, maxPoll)
		for _, w := range l.waiters {
			l.want(w)
		}
	default:
		l.want(l.waiters[0])
	}
}

func (a *attempt) makeWake() {
	if a.wake == nil {
		a.wake = make(chan struct{}, 1)
	}
}
