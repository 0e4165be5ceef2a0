package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// watcher waits for the first waiter of a line. It blocks on the named lock of the attempt ahead of
// that, on a connection of its own, or polls if it has none.
type watcher struct {
	l     *line
	conn  *sql.Conn // nil: polls
	polls pollSchedule

	last   string // holder and attempt ahead of the last wait
	tried  int    // of these, whose named lock was free
	passed bool   // the last request was to pass the lock on

	deadlineEnd time.Time // of the last deadline for the first waiter, see deadline.go
}

const permitPoll = 50 * time.Millisecond // the longest pause of a waiter for permits, in its first half second

const waitDialTime = time.Second // the key is not watched meanwhile

// watch watches the key until no attempt of this process waits for it. s was read for first.
func (l *line) watch(first *attempt, s rowState) {
	w := &watcher{l: l}
	defer w.closeConn(false)
	asked := first
	var failing time.Time // when an outage began; zero while the server answers
	for {
		if first = l.dispatch(asked, s); first == nil {
			return
		}
		next, err := w.next(first, asked, s)
		switch {
		case err == nil:
			s, asked, failing = next, first, time.Time{}
			continue
		case failing.IsZero():
			failing = time.Now()
		}
		l.failed(err, failing)
		sleep(l.b.life, w.polls.backoff())
	}
}

// next returns the row after it has changed, or may have, for first. s was read for asked.
func (w *watcher) next(first, asked *attempt, s rowState) (rowState, error) {
	b := w.l.b
	v := values{req: first.req, place: first.place}
	w.polls.max = min(250*time.Millisecond, max(first.req.TTL/8, minPoll))
	if first.req.Share.Capacity > 0 && s.shared && s.ahead == "" {
		// Any holder may free permits, and no named lock shows that.
		w.polls.max = min(w.polls.max, max(permitPoll, time.Since(first.since)/10))
	}
	read := b.readFor(v, s)
	again := func(before ...string) (rowState, error) {
		return w.ask(first, func(ctx context.Context) (rowState, error) {
			return b.overPool(ctx, append(b.packet(v, before), read))
		})
	}
	passed := w.passed
	w.passed = false
	switch {
	case first != asked || s.unread():
		return again()
	case s.first == first.place && s.deadline > 0:
		return again(clearDeadline)
	case !s.held() || first.behind(s) && s.overdue():
		if passed { // a transaction with Guard keeps a holder that has expired
			w.pause(w.polls.backoff())
		} else {
			w.polls.last = 0
		}
		w.passed = true
		return w.ask(first, func(ctx context.Context) (rowState, error) { return b.pass(ctx, v, s.shares) })
	case w.setsDeadline(first, s):
		return again(s.setDeadline())
	}
	ahead := w.ahead(s)
	if current := fmt.Sprint(s.token, ahead); current != w.last {
		w.last, w.tried, w.polls.last = current, 0, 0
	}
	if w.tried < len(ahead) && w.connect() {
		next, free, err := w.block(first, read, ahead[w.tried], s)
		if free {
			w.tried++
		}
		if err == nil {
			return next, nil
		}
		w.closeConn(true)
	}
	if w.tried == len(ahead) {
		w.tried = 0
	}
	w.pause(min(w.polls.backoff(), max(time.Until(s.sent.Add(s.left())), 0)+time.Millisecond))
	return again()
}

// pause ends early if this process has granted the key to waiters.
func (w *watcher) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.l.look:
	case <-w.l.b.life.Done():
	}
}

// ahead returns the attempts on whose named locks the watcher waits in turn: that ahead of first, and
// the holder, or the last shared holder. A waiter for a share waits for exclusive attempts only: another
// share that ends need not be that of those.
func (w *watcher) ahead(s rowState) (owners []string) {
	if s.ahead != "" {
		owners = []string{s.ahead}
	}
	holder := s.owner
	if s.shared {
		holder = s.last
	}
	if holder != "" && holder != s.ahead {
		owners = append(owners, holder)
	}
	return owners
}

// readFor returns the statement that reads the lock of s for an attempt.
func (b *Backend) readFor(v values, s rowState) string {
	if v.req.Share.Exclusive() && !s.shares {
		return b.read(v, present, "{place}", false)
	}
	return b.readShares(v, readAfter{place: "{place}"})
}

// ask calls send for first. It waits for the answer at most for the TTL.
func (w *watcher) ask(first *attempt, send func(context.Context) (rowState, error)) (rowState, error) {
	limit := max(first.req.TTL, 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(w.l.b.life, limit)
	defer cancel()
	s, err := send(ctx)
	if err != nil && ctx.Err() != nil && w.l.b.life.Err() == nil {
		err = fmt.Errorf("mysql%s: no answer within %v", w.l.b.address, limit) // not the deadline of the caller
	}
	return s, err
}

// connect opens the connection that waits. It returns false if the watcher has to poll.
func (w *watcher) connect() bool {
	n := w.l.b.notifier
	if w.conn != nil || n == nil {
		return w.conn != nil
	}
	if !n.reserveWait(w.l) {
		return false
	}
	ctx, cancel := context.WithTimeout(n.b.life, waitDialTime)
	defer cancel()
	conn, err := n.b.connect(ctx)
	if err != nil {
		n.releaseWait(w.l, true)
		return false
	}
	w.conn = conn
	return true
}

// closeConn returns the connection, which owns no named locks, to the pool.
func (w *watcher) closeConn(broken bool) {
	if w.conn == nil {
		return
	}
	if broken {
		discard(w.conn)
	} else {
		_ = w.conn.Close()
	}
	w.conn = nil
	w.l.b.notifier.releaseWait(w.l, broken)
}

// block waits until the named lock of owner is free, at most until the lease of s has ended, and
// reads the row. free reports whether the named lock was free.
func (w *watcher) block(first *attempt, read, owner string, s rowState) (next rowState, free bool, err error) {
	b := w.l.b
	left := max(time.Until(s.sent.Add(s.left())), 0)
	limit := min(left+left/64+5*time.Millisecond, maxWait) // a little after a renewal rather than before it
	limit = w.waitLimit(first, owner, s, limit)
	ctx, cancel := context.WithTimeout(b.life, limit+b.opt.timeout)
	defer cancel()
	b.notifier.waitBegins(w.l, cancel)
	begun := time.Now()
	next, free, err = b.notifier.block(ctx, w.conn, owner, limit, read)
	if err != nil && unanswered(ctx, begun) {
		b.testIdle()
	}
	switch number(err) {
	case errTimeLimit, errTimeLimitMySQL:
	case errNameDeadlock, errDeadlock: // not possible among named locks of this driver
		free = true
	default:
		return next, free, err
	}
	bounded, cancelRead := context.WithTimeout(ctx, b.opt.timeout)
	defer cancelRead()
	next, err = b.queryRow(bounded, w.conn, packet{read})
	return next, free, err
}
