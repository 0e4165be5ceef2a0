package pglock

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	minPollInterval = 10 * time.Millisecond  // without notifications
	maxPollInterval = 500 * time.Millisecond // well within the provisional TTL
)

// line has the attempts of this process on one key. One request to acquire at a time is in
// flight. Of the waiters only the first polls: the key is granted to it before the others.
type line struct {
	slot chan struct{} // capacity 1: a request to acquire is in flight

	// The rest is guarded by b.mu.
	users    int           // attempts
	waiters  []*attempt    // in the queue of the server, in its order
	next     time.Time     // of the poll: when the lease of the holder ends
	check    time.Time     // of the poll of a share, beside shared holders: whether the first waiter is alive; zero: none
	latest   time.Time     // limits what a notification may set
	asOf     int64         // server time of the reply or notification that set next
	polling  bool          // there are no notifications
	interval time.Duration // of polls then
	again    bool          // notifications may be lost since the request was sent: poll after its reply
	clock    serverClock
}

// enter waits until the attempt may send a request to acquire, and for a connection that is not kept for renewals and
// releases. It returns a context for the request and the function to call after the reply.
func (a *attempt) enter(ctx context.Context) (request context.Context, leave func(), err error) {
	for i, slots := range []chan struct{}{a.line.slot, a.b.acquiring} {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			if i == 1 {
				<-a.line.slot
			}
			return nil, nil, ctx.Err()
		}
	}
	request, leaveAcquiring := withSlot(ctx, a.b.acquiring)
	return request, func() { leaveAcquiring(); <-a.line.slot }, nil
}

// done removes the attempt from its line: it sends no request to acquire any more.
func (a *attempt) done() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	l := a.line
	if l.users--; l.users == 0 {
		delete(a.b.lines, a.req.Key)
	}
	l.remove(a)
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (l *line) remove(a *attempt) {
	if i := slices.Index(l.waiters, a); i >= 0 {
		l.waiters[i] = nil
		if i == 0 {
			l.waiters = l.waiters[1:]
		} else {
			l.waiters = slices.Delete(l.waiters, i, i+1)
		}
		l.arm()
	}
}

// arm sets the timer of the first waiter.
func (l *line) arm() {
	if len(l.waiters) == 0 {
		return
	}
	first, next := l.waiters[0], l.next
	switch {
	case first.dropped:
		next = time.Now()
	case !first.req.Share.Exclusive() && !l.check.IsZero() && l.check.Before(next):
		next = l.check
	}
	first.timer.Reset(max(0, time.Until(next)))
}

// checkIn sets the time of the next check after a reply to a share. A share that enters does not delay it.
func (l *line) checkIn(r reply) {
	switch at := time.Now().Add(r.check + slack()); {
	case r.check < 0:
		l.check = time.Time{}
	case !r.entered || l.check.IsZero() || at.Before(l.check):
		l.check = at
	}
}

// pollIn sets the next poll after an operation of this process, with which a lease of d began.
func (l *line) pollIn(d time.Duration) {
	if l.interval = 0; l.polling {
		d = min(d, minPollInterval)
	}
	l.next = time.Now().Add(d + slack())
	l.latest = l.next
	l.arm()
}

// schedule sets the next poll after a reply that the key is held: when the lease ends. A
// holder that renews at every third of the TTL always has two thirds left.
func (a *attempt) schedule(r reply) {
	polling := a.b.polling()
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	l := a.line
	l.polling = polling
	l.clock = serverClock{sent: r.sent, at: r.serverTime, stale: l.again}
	if r.entered || a.req.Share.Exclusive() { // a reader keeps the hash of the writer ahead
		a.ahead = r.ahead
	}
	if a.pushSeen {
		a.ahead = "" // the secret may be known by now
	}
	known := slices.Contains(l.waiters, a)
	if !known || r.entered {
		l.waiters = append(slices.DeleteFunc(l.waiters, func(w *attempt) bool { return w == a }), a)
	}
	next := r.holder.Left + slack()
	l.latest = r.sent.Add(next)
	switch {
	case polling:
		l.interval = min(max(2*l.interval, minPollInterval), maxPollInterval)
		next = min(l.interval, r.holder.Left+time.Millisecond, a.req.TTL/3)
	case l.again:
		next = 0
	}
	if polling || l.again || r.serverTime >= l.asOf { // else a newer notification has set it
		l.asOf = max(l.asOf, r.serverTime)
		l.next = time.Now().Add(next)
	}
	if !a.req.Share.Exclusive() {
		l.checkIn(r)
	}
	if known && (r.entered || a.passUnknown) {
		l.dropOthers(a)
	}
	a.passUnknown = false
	a.dropped = false
	l.arm()
	if a != l.waiters[0] && a.unanswered {
		a.timer.Reset(a.req.TTL) // its place may be another one than the line has
	}
}

// dropOthers makes the other waiters ask: the server had dropped a from the queue, and thus all waiters of this process, or
// may have done so.
func (l *line) dropOthers(a *attempt) {
	if a.dropped {
		return // they ask already
	}
	for _, w := range l.waiters {
		if w != a {
			w.dropped = true
			w.timer.Reset(0)
		}
	}
}

// leaseChanged sets the next poll: of the lease left remained at serverTime.
func (a *attempt) leaseChanged(serverTime int64, left time.Duration) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	l := a.line
	if serverTime < l.asOf {
		return // older than the last reply
	}
	if l.latest.IsZero() {
		l.again = true // before the first reply; any role can send notifications
		return
	}
	l.asOf = serverTime
	l.next = time.Now().Add(max(0, min(left+slack(), time.Until(l.latest))))
	l.arm()
}

// slack keeps a poll from arriving just before the lease ends.
func slack() time.Duration { return time.Millisecond + rand.N(time.Millisecond) }

// pollNow makes the first waiter of each key poll at once: notifications may be lost, and
// another server may answer now.
func (b *Backend) pollNow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		l.clock.stale, l.again = true, true
		l.next = time.Now()
		l.arm()
	}
}

// serverClock relates times of the server to local ones: a request was sent at the
// local time sent and executed at the server time at.
type serverClock struct {
	sent  time.Time
	at    int64 // µs; 0: not known
	stale bool  // another server may answer now
}

// until returns the local time up to which a pushed grant is certain, however late the
// push was received, or zero if the server clock is not known.
func (c serverClock) until(p push) time.Time {
	if c.stale || c.at == 0 {
		return time.Time{}
	}
	// The clocks may have drifted apart by 500 ppm since the request.
	t := c.sent.Add(micros64(p.expires-c.at) - p.received.Sub(c.sent)/2000)
	if latest := p.received.Add(p.ttl); t.After(latest) {
		t = latest // the server's clock was set
	}
	return t
}
