package mysqllock

import (
	"fmt"
	"time"
)

// A waiter that does not fit beside shared holders stops the shares behind it for as long as those hold. So a share
// that waits behind the first waiter sets a deadline in the row of that waiter (the column "expires"), and the process
// of the first waiter clears it. If the deadline passes, that process is dead or stopped: passSharesPacket removes its
// waiters, as those of a process that did not claim a provisional grant.
const (
	deadlineTTL   = provisionalTTL
	deadlineReads = deadlineTTL / 3 // how often the first waiter reads its row at least
)

// setDeadline returns the statement that does so, unless that waiter has a deadline or is of this process.
func (s rowState) setDeadline() string {
	return fmt.Sprintf("UPDATE {table} SET expires={now}+%d WHERE name={name} AND place=%d AND expires=0 AND process<>{process}", deadlineTTL.Microseconds(), s.first)
}

const clearDeadline = "UPDATE {table} SET expires=0 WHERE name={name} AND place={place} AND owner={me}"

// overdueProcess is the process of the first waiter if its deadline has passed, or NULL. A waiter beside an exclusive
// holder has no deadline to keep: it does not read its row.
const overdueProcess = `(SELECT IF(w.expires BETWEEN 1 AND @interlock_now AND @interlock_ended IS NULL,w.process,NULL) FROM {table} w
WHERE w.name={name} AND w.place>=@interlock_from AND w.place<{shares} ORDER BY w.place LIMIT 1)`

// overdue reports whether the deadline of the first waiter had passed.
func (s rowState) overdue() bool { return s.deadline > 0 && s.deadline <= s.now }

// deadlineEnd returns when the deadline of the first waiter ends by the local clock.
func (s rowState) deadlineEnd() time.Time {
	return s.sent.Add(time.Duration(s.deadline-s.now) * time.Microsecond)
}

// startDeadline sets a deadline, in the background, if a share was refused because of a first waiter of another process
// that has none, or waits behind it. It returns s with that deadline.
func (a *attempt) startDeadline(s rowState) rowState {
	b := a.b
	if s.first == 0 || s.deadline > 0 || s.first == s.place || s.heldBy(a.req.Owner) || a.line.leads(s.first) || !b.enter() {
		return s
	}
	q := b.sql(s.setDeadline(), values{req: a.req})
	go func() {
		defer b.wg.Done()
		_, _ = b.exec(b.life, q) // if that fails the watcher does it later
	}()
	s.deadline = s.now + deadlineTTL.Microseconds()
	return s
}

// leads reports whether the first known waiter of this process has that place.
func (l *line) leads(place int64) bool {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return len(l.waiters) > 0 && l.waiters[0].place == place
}

// setsDeadline reports whether first, which waits behind the first waiter of the queue, is to set a deadline for it:
// at most one in deadlineTTL.
func (w *watcher) setsDeadline(first *attempt, s rowState) bool {
	if !first.behind(s) {
		return false
	}
	if s.deadline > 0 {
		w.deadlineEnd = s.deadlineEnd()
		return false
	}
	if time.Until(w.deadlineEnd) > 0 {
		return false
	}
	w.deadlineEnd = time.Now().Add(deadlineTTL)
	return true
}

// behind reports whether the attempt is a share that the first waiter of the queue keeps from shared holders.
func (a *attempt) behind(s rowState) bool {
	return !a.req.Share.Exclusive() && s.shared && s.first > 0 && s.first < a.place
}

// waitLimit bounds the wait of first for the named lock of owner. Without an exclusive attempt ahead of it first may
// be the first waiter, whose deadline others set.
func (w *watcher) waitLimit(first *attempt, owner string, s rowState, limit time.Duration) time.Duration {
	switch {
	case s.shared && owner != s.ahead:
		return min(limit, deadlineReads)
	case first.behind(s):
		return min(limit, max(time.Until(w.deadlineEnd), 0)+5*time.Millisecond)
	}
	return limit
}
