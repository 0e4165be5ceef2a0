package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/server"
)

const (
	maxTries   = 3                     // attempts of TryAcquire while votes are split
	splitPause = 60 * time.Millisecond // before the next round while votes are split; doubled at random
	tryPause   = 15 * time.Millisecond // the same for TryAcquire

	foreignPoll = time.Second      // between the rounds behind a foreign holder, which sends no notification
	maxPoll     = 30 * time.Second // the part of a waiter's own TTL that counts
)

// pollSlack returns the delay that keeps a round from beginning just before the expiry.
func pollSlack() time.Duration { return time.Millisecond + jitter(time.Millisecond) }

// TryAcquire makes one attempt in one round trip to all nodes. If the votes are split, so
// that no attempt has a quorum, it makes up to maxTries.
func (r *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, backend.NotExecuted(err)
	}
	if r.life.Err() != nil {
		return nil, backend.ErrClosed
	}
	a := r.newAttempt(req, noQueue)
	var failing time.Time
	for try := 1; ; {
		g, t, err := a.askOnce(ctx)
		if g != nil {
			return g, nil
		}
		if err == nil && a.quorumPossible(t) {
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) < r.quorumTimeout(req.TTL) {
				server.Sleep(ctx, tryPause+jitter(tryPause))
				continue
			}
		}
		split := err == nil && t.rivalVotes < r.quorum && t.mine+t.theirs >= r.quorum && time.Until(t.until) <= 0
		if split && try < maxTries {
			o := a.freeEverywhere()
			a.endFreeing()
			// Do not ask again while a release is unanswered. A node with a tombstone of the
			// attempt refuses it.
			if o.unknown() == 0 && !a.any(func(v *vote) bool { return v.tombstoned }) {
				try++
				server.Sleep(ctx, tryPause+jitter(tryPause))
				continue
			}
		}
		return nil, a.fail(t, err)
	}
}

// fail ends a TryAcquire and returns its error.
func (a *attempt) fail(t tally, err error) error {
	mayRemain := a.giveUp()
	if err == nil && t.theirs > 0 && t.mine+t.theirs >= a.r.quorum {
		// An answer may have come since the count, or was lost. A later answer is released
		// when it comes.
		if a.any(func(v *vote) bool { return v.mayRemain }) {
			a.freeEverywhere()
		}
		a.forget()
		return &backend.LockedError{Holder: t.rival}
	}
	if err == nil {
		err = a.noQuorumError(t)
	}
	if !mayRemain {
		a.forget()
		return backend.NotExecuted(err)
	}
	return backend.Uncertain(err)
}

// withNoQuorum adds the errors of the nodes to end, the error of a context, if fewer than
// a quorum answered.
func (a *attempt) withNoQuorum(end error) error {
	a.mu.Lock()
	t := a.count()
	a.mu.Unlock()
	if t.mine+t.theirs < a.r.quorum {
		return fmt.Errorf("%w: %w", end, a.noQuorumError(t))
	}
	return end
}

// quorumPossible reports whether another round may reach a quorum: enough nodes were not
// asked because other requests test whether they are back, or refused a request that was
// delayed for too long, for example by a pause of the machine.
func (a *attempt) quorumPossible(t tally) bool {
	n := t.mine + t.theirs
	if n >= a.r.quorum {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.votes {
		var skipped notAsked
		if v.state == noVote && (errors.As(v.err, &skipped) || errors.Is(v.err, errLate)) {
			n++
		}
	}
	return n >= a.r.quorum
}

// noQuorumError returns the error of too few answers, or of late answers.
func (a *attempt) noQuorumError(t tally) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	errs := make([]error, len(a.votes))
	for i, v := range a.votes {
		switch {
		case v.state == theirs && a.stale(v):
			errs[i] = errOverdue
		case v.state == mine:
			errs[i] = a.r.clocks.check(i)
		default:
			errs[i] = v.err
		}
	}
	if t.mine >= a.r.quorum {
		return fmt.Errorf("too slow: granted at %d of %d nodes with %v left of %v", t.mine, len(a.votes), time.Until(t.until).Round(time.Millisecond), a.req.TTL)
	}
	return a.r.failed("voted", t.mine+t.theirs, errs)
}

// askOnce asks all nodes. It returns a grant, or the votes when they are decided.
func (a *attempt) askOnce(ctx context.Context) (*grant, tally, error) {
	a.ask()
	timeout := a.r.nodeTimeout(a.req.TTL)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		g, t := a.tryGrant()
		if g != nil {
			return g, t, nil
		}
		writing := t.mine >= a.r.quorum && t.agree < a.r.quorum
		if t.rivalVotes >= a.r.quorum || t.theirs > len(a.votes)-a.r.quorum || t.pending == 0 && !writing {
			return nil, t, nil
		}
		select {
		case <-a.changed:
		case <-timer.C:
			if quorumTimeout := a.r.quorumTimeout(a.req.TTL); t.mine+t.theirs < a.r.quorum && timeout < quorumTimeout {
				timer.Reset(quorumTimeout - timeout)
				timeout = quorumTimeout
				continue
			}
			a.overdue()
			return nil, t, nil
		case <-ctx.Done():
			return nil, t, a.withNoQuorum(ctx.Err())
		case <-a.r.life.Done():
			return nil, t, backend.ErrClosed
		}
	}
}

// overdue marks the nodes that have not answered.
func (a *attempt) overdue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, v := range a.votes {
		if v.open > 0 && !v.sent.After(a.roundStart) {
			v.fail(errOverdue)
			a.r.nodes[i].overdue()
		}
	}
}

// Acquire takes the key. It waits in the queues of the nodes for its turn.
func (r *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, backend.NotExecuted(err)
	}
	if r.life.Err() != nil {
		return nil, backend.ErrClosed
	}
	a := r.newAttempt(req, joinQueue)
	w := &waiting{attempt: a, timer: time.NewTimer(time.Hour)}
	defer w.timer.Stop()
	g, err := w.wait(ctx)
	if err == nil {
		return g, nil
	}
	if !a.giveUp() {
		a.forget()
		return nil, backend.NotExecuted(err)
	}
	return nil, backend.Uncertain(err)
}

// waiting is an attempt that waits: it asks all nodes in rounds, and nodes notify it
// between rounds.
type waiting struct {
	*attempt
	timer       *time.Timer
	extendedEnd time.Time // of a round in which fewer than a quorum answered in time; else zero
	judged      bool      // the last round has ended
	queued      bool      // a quorum has answered once
	split       time.Time // of the next round while votes are split; zero if not decided
	failing     time.Time // since when fewer than a quorum answer
}

// wait returns a grant, or the error that ends the wait.
func (w *waiting) wait(ctx context.Context) (backend.Grant, error) {
	a, q := w.attempt, w.r.quorum
	a.ask()
	for {
		g, t := a.tryGrant()
		if g != nil {
			return g, nil
		}
		a.mu.Lock()
		again, began := a.askAgain, a.roundStart
		a.mu.Unlock()
		now, timeout := time.Now(), a.r.nodeTimeout(a.req.TTL)
		end := began.Add(timeout)
		if t.mine+t.theirs < q {
			if w.extendedEnd.IsZero() && !now.Before(end) {
				// Counted from now: after a pause of this process the answers arrive soon.
				w.extendedEnd = now.Add(a.r.quorumTimeout(a.req.TTL) - timeout)
			}
			if !w.extendedEnd.IsZero() {
				end = w.extendedEnd
			}
		}
		if !w.judged && (t.pending == 0 || t.rivalVotes >= q || !now.Before(end)) {
			if t.pending > 0 && t.rivalVotes < q {
				a.overdue()
			}
			w.judged, w.split = true, time.Time{}
			if err := w.judgeRound(t); err != nil {
				return nil, err
			}
		}
		next := end
		if w.judged {
			if next = w.next(t, now); again {
				next = now
			}
			if !now.Before(next) {
				a.ask()
				w.extendedEnd, w.judged = time.Time{}, false
				continue
			}
		}
		w.timer.Reset(next.Sub(now))
		select {
		case <-a.changed:
		case <-w.timer.C:
		case <-ctx.Done():
			return nil, a.withNoQuorum(ctx.Err())
		case <-a.r.life.Done():
			return nil, backend.ErrClosed
		}
	}
}

// judgeRound ends a round. It returns an error if the wait ends with it.
func (w *waiting) judgeRound(t tally) error {
	a := w.attempt
	if t.mine+t.theirs < a.r.quorum {
		err := a.noQuorumError(t)
		if w.failing.IsZero() {
			w.failing = time.Now()
		}
		if !w.queued && a.quorumPossible(t) && time.Since(w.failing) < a.r.quorumTimeout(a.req.TTL) {
			return nil
		}
		if !w.queued || errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed) || time.Since(w.failing) >= a.req.TTL {
			return err
		}
		return nil // retry until the TTL has passed
	}
	w.failing = time.Time{}
	if !w.queued && t.theirs > 0 {
		w.queued = true
		if a.req.OnWait != nil {
			a.req.OnWait(&backend.LockedError{Holder: t.rival})
		}
	}
	if t.mine > 0 && t.mine < a.r.quorum && t.earlierTicket {
		a.yield()
	}
	return nil
}

// next returns the time of the next round. While no rival has a quorum that is soon. Else
// the first waiter of a queue, which the nodes notify of the lease, asks when the leases of
// a quorum have ended. The other waiters ask later, to find out whether the first is alive:
// after half of that time more, or after the length of a lease at its first renewal.
func (w *waiting) next(t tally, now time.Time) time.Time {
	a, q := w.attempt, w.r.quorum
	if t.rivalVotes < q {
		if w.split.IsZero() {
			w.split = now.Add(splitPause + jitter(splitPause))
		}
		if t.mine >= q && t.agree >= q { // their leases end soon
			return now
		}
		return w.split
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.split = time.Time{}
	var ends []time.Time
	var asked time.Time
	first, ours := false, true
	for _, v := range a.votes {
		if v.state != theirs || a.stale(v) {
			continue
		}
		first = first || v.first
		if v.sent.After(asked) {
			asked = v.sent
		}
		if v.ends.IsZero() || v.holder.Foreign {
			ours = false
		}
		if !v.ends.IsZero() {
			ends = append(ends, v.ends)
		}
	}
	free := len(a.votes) - t.theirs // at most
	slices.SortFunc(ends, func(a, b time.Time) int { return a.Compare(b) })
	at := asked.Add(foreignPoll)
	if i := max(q-free, 1) - 1; i < len(ends) && (ours || ends[i].Before(at)) {
		at = ends[i].Add(pollSlack())
	}
	if !ours {
		return at
	}
	if bound := max(at.Sub(asked), min(a.req.TTL, maxPoll)); !first {
		at = asked.Add(bound + bound/2 + 50*time.Millisecond)
	}
	return at
}

// Abandon makes sure that nothing remains of an attempt. It returns nil when so many nodes
// have acknowledged it that the others are no quorum. At those it continues in the
// background until the grant has expired.
func (r *Backend) Abandon(ctx context.Context, req backend.Request) error {
	r.mu.Lock()
	a := r.attempts[req.Owner]
	r.mu.Unlock()
	if a == nil {
		a = r.newAttempt(req, noQueue)
		a.assumeAnything()
	}
	a.giveUp()
	defer a.forget()
	o, err := a.freeAt(ctx, allNodes)
	if o.yes+o.no > len(r.nodes)-r.quorum {
		a.endFreeing()
		return nil
	}
	if err == nil {
		err = r.failed("acknowledged the end of the attempt", o.yes+o.no, o.errs)
	}
	return backend.Uncertain(err)
}
