package mysqllock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// line has the attempts of this process on one key. One request to acquire at a time is in
// flight. One watcher waits for the first of those in the queue: it is granted the key before
// the others.
type line struct {
	b    *Backend
	key  string
	slot chan struct{} // capacity 1: a request to acquire is in flight
	look chan struct{} // capacity 1: this process has granted the key to waiters, the watcher is to read it

	// Guarded by Backend.mu:
	users    int        // attempts
	waiters  []*attempt // in the queue, by place
	watching bool
}

// news is what the watcher sends an attempt. If both fields are empty the attempt is not in the
// queue any more and has to ask.
type news struct {
	granted *rowState
	err     error // the server did not answer for the TTL of the attempt
}

func (b *Backend) newAttempt(req backend.Request) *attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[req.Key]
	if l == nil {
		l = &line{b: b, key: req.Key, slot: make(chan struct{}, 1), look: make(chan struct{}, 1)}
		b.lines[req.Key] = l
	}
	l.users++
	return &attempt{b: b, req: req, line: l, news: make(chan news, 1)}
}

// done removes the attempt from its line.
func (a *attempt) done() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.removeLocked()
	a.line.users--
	a.line.deleteLocked()
}

func (l *line) deleteLocked() {
	if l.users == 0 && !l.watching {
		delete(l.b.lines, l.key)
	}
}

func (a *attempt) removeLocked() {
	l := a.line
	switch i := slices.Index(l.waiters, a); {
	case i == 0:
		l.waiters[0] = nil
		l.waiters = l.waiters[1:]
	case i > 0:
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	delete(l.b.waiting, a.req.Owner)
}

// enter waits until the attempt may send a request to acquire: of the connections some are
// kept for renewals and releases. It returns the function to call after the reply.
func (a *attempt) enter(ctx context.Context) (leave func(), err error) {
	for i, slots := range []chan struct{}{a.line.slot, a.b.acquiring} {
		select {
		case slots <- struct{}{}:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-a.b.life.Done():
			err = backend.ErrClosed
		}
		if i == 1 {
			<-a.line.slot
		}
		return nil, backend.NotExecuted(err)
	}
	return func() { <-a.b.acquiring; <-a.line.slot }, nil
}

// contended reports whether an attempt of this process waits for the key.
func (l *line) contended() bool {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return len(l.waiters) > 0
}

// enqueue adds an attempt that is in the queue of s, and starts the watcher if it does not run.
func (a *attempt) enqueue(s rowState) {
	b, l := a.b, a.line
	b.mu.Lock()
	defer b.mu.Unlock()
	a.place, a.since = s.place, time.Now()
	i := len(l.waiters)
	for i > 0 && l.waiters[i-1].place > a.place {
		i--
	}
	l.waiters = slices.Insert(l.waiters, i, a)
	b.waiting[a.req.Owner] = a
	if l.watching || b.closed {
		return
	}
	l.watching = true
	b.wg.Go(func() { l.watch(a, s) })
}

// sendLocked sends the attempt n and removes it from the queue. The caller holds Backend.mu.
func (a *attempt) sendLocked(n news) {
	a.removeLocked()
	select {
	case <-a.news:
	default:
	}
	a.news <- n
}

// dispatch sends the waiters what they learn from s, which was read for the attempt asked. It
// returns the first of the others. If there is none it returns nil, and the watcher ends.
func (l *line) dispatch(asked *attempt, s rowState) *attempt {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range append(s.holders, s) {
		if a := b.waiting[h.owner]; a != nil && a.line == l && h.held() {
			h.sent = s.sent
			a.sendLocked(news{granted: &h})
		}
	}
	if b.waiting[asked.req.Owner] == asked && s.place == 0 && s.sent.After(asked.since) {
		asked.sendLocked(news{}) // it missed its turn
	}
	if len(l.waiters) > 0 && !b.closed {
		return l.waiters[0]
	}
	l.watching = false
	l.deleteLocked()
	return nil
}

// lookAgain lets the watcher of a key read it if it polls.
func (b *Backend) lookAgain(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[key]; l != nil {
		select {
		case l.look <- struct{}{}:
		default:
		}
	}
}

// failed sends the error to the waiters for whose TTL the server has failed, or all if it will fail again.
func (l *line) failed(err error, since time.Time) {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	final := errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed)
	for _, a := range slices.Clone(l.waiters) {
		if final || time.Since(since) >= a.req.TTL {
			a.sendLocked(news{err: err})
		}
	}
}
