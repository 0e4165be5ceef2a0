package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	tries       = 3                     // of TryAcquire, when votes split
	splitPause  = 60 * time.Millisecond // and as much again by chance, to the next poll while votes are split
	holdersLook = 15 * time.Millisecond // the pause of TryAcquire, likewise
)

// TryAcquire makes one attempt in one round trip to all nodes at once. When the
// votes split, so that nobody has a majority, it makes up to three.
func (r *Redlock) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // nothing was sent
	}
	if r.life.Err() != nil {
		return nil, backend.ErrClosed
	}
	a := r.newBallot(req, queueNo)
	var failing time.Time
	for try := 1; ; {
		g, t, err := a.once(ctx)
		if g != nil {
			return g, nil
		}
		if err == nil && a.unheard(t) {
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) < r.patience(req.TTL) {
				sleep(ctx, holdersLook+jitter(holdersLook))
				continue
			}
		}
		split := err == nil && t.most < r.quorum && t.mine+t.theirs >= r.quorum && time.Until(t.until) <= 0
		if split && try < tries {
			o := a.undo()
			a.freedAll()
			// What is still being freed must not be asked for again, and a node that was
			// told to refuse what may arrive late refuses the whole attempt.
			if o.unknown() == 0 && !a.buried() {
				try++
				sleep(ctx, holdersLook+jitter(holdersLook))
				continue
			}
		}
		return nil, a.refused(t, err)
	}
}

// refused ends an attempt that does not wait, with the error of its failure.
func (a *ballot) refused(t tally, err error) error {
	touched := a.giveUp()
	if err == nil && t.theirs > 0 && t.mine+t.theirs >= a.r.quorum {
		// Not what was counted but what is there now: an answer may have come since, or
		// was lost. One that is still to come is undone when it does.
		if a.touched() {
			a.undo()
		}
		a.forget()
		return &backend.LockedError{Holder: t.rival}
	}
	if err == nil {
		a.mu.Lock()
		err = a.silence(t)
		a.mu.Unlock()
	}
	if !touched {
		a.forget()
		return err
	}
	return backend.Uncertain(err)
}

// because adds to the end of a context what the nodes had to say, if too few answered.
func (a *ballot) because(end error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.count(); t.mine+t.theirs < a.r.quorum {
		return fmt.Errorf("%w: %w", end, a.silence(t))
	}
	return end
}

// unheard reports whether so many nodes were not asked, while others find out whether
// they are back, or got a request that was held up for too long, as when the machine
// stood still, that they could make up a majority.
func (a *ballot) unheard(t tally) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for i := range a.votes {
		v := &a.votes[i]
		var skipped notAsked
		if v.state == silent && (errors.As(v.err, &skipped) || errors.Is(v.err, errLate)) {
			n++
		}
	}
	return t.mine+t.theirs < a.r.quorum && t.mine+t.theirs+n >= a.r.quorum
}

// silence is the error of too few answers, or of answers that came too late, under a.mu.
func (a *ballot) silence(t tally) error {
	errs := make([]error, len(a.votes))
	for i := range a.votes {
		if errs[i] = a.votes[i].err; a.votes[i].state == theirs && a.stale(&a.votes[i]) {
			errs[i] = errOverdue
		}
	}
	if t.mine >= a.r.quorum {
		return fmt.Errorf("redlock: too slow: granted at %d of %d nodes with %v left of %v", t.mine, len(a.votes), time.Until(t.until).Round(time.Millisecond), a.req.TTL)
	}
	return a.r.failed("answered", t.mine+t.theirs, errs)
}

// once asks all nodes and returns a grant, or the votes when they are decided.
func (a *ballot) once(ctx context.Context) (*quorumGrant, tally, error) {
	a.ask()
	timeout := a.r.nodeTimeout(a.req.TTL)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		g, t := a.won()
		if g != nil {
			return g, t, nil
		}
		writing := t.mine >= a.r.quorum && t.agree < a.r.quorum
		if t.most >= a.r.quorum || t.theirs > len(a.votes)-a.r.quorum || t.pending == 0 && !writing {
			return nil, t, nil
		}
		select {
		case <-a.changed:
		case <-timer.C:
			if patience := a.r.patience(a.req.TTL); t.mine+t.theirs < a.r.quorum && timeout < patience {
				timer.Reset(patience - timeout)
				timeout = patience
				continue
			}
			a.overdue()
			return nil, t, nil
		case <-ctx.Done():
			return nil, t, a.because(ctx.Err())
		case <-a.r.life.Done():
			return nil, t, backend.ErrClosed
		}
	}
}

// overdue tells the nodes that have not answered.
func (a *ballot) overdue() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.votes {
		if v := &a.votes[i]; v.open > 0 && !v.sent.After(a.began) {
			v.fail(errOverdue)
			a.r.nodes[i].overdue()
		}
	}
}

// Acquire takes the key, waiting in the queues of the nodes for its turn.
func (r *Redlock) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // nothing was sent
	}
	if r.life.Err() != nil {
		return nil, backend.ErrClosed
	}
	a := r.newBallot(req, queueEnter)
	w := &waiting{ballot: a, timer: time.NewTimer(time.Hour)}
	defer w.timer.Stop()
	g, err := w.wait(ctx)
	if err == nil {
		return g, nil
	}
	if !a.giveUp() {
		a.forget()
		return nil, err
	}
	return nil, backend.Uncertain(err)
}

// waiting is an attempt that waits: rounds of questions, and pushes between them.
type waiting struct {
	*ballot
	timer   *time.Timer
	more    time.Time // how long the last round goes on, since too few had answered in time; zero if it does not
	settled bool      // it is over
	queued  bool      // a majority has answered once
	split   time.Time // when to ask again while votes are split; zero if not decided
	failing time.Time // since when too few answer
}

// wait returns a grant, or the error that ends the waiting.
func (w *waiting) wait(ctx context.Context) (backend.Grant, error) {
	a, q := w.ballot, w.r.quorum
	a.ask()
	for {
		g, t := a.won()
		if g != nil {
			return g, nil
		}
		a.mu.Lock()
		again, began := a.again, a.began
		a.mu.Unlock()
		now, timeout := time.Now(), a.r.nodeTimeout(a.req.TTL)
		end := began.Add(timeout)
		if t.mine+t.theirs < q {
			if w.more.IsZero() && !now.Before(end) {
				// Counted from now: when this process stood still, the answers are a moment away.
				w.more = now.Add(a.r.patience(a.req.TTL) - timeout)
			}
			if !w.more.IsZero() {
				end = w.more
			}
		}
		if !w.settled && (t.pending == 0 || t.most >= q || !now.Before(end)) {
			if t.pending > 0 && t.most < q {
				a.overdue()
			}
			w.settled, w.split = true, time.Time{}
			if err := w.settle(t); err != nil {
				return nil, err
			}
		}
		next := end
		if w.settled {
			if next = w.next(t, now); again {
				next = now
			}
			if !now.Before(next) {
				a.ask()
				w.more, w.settled = time.Time{}, false
				continue
			}
		}
		w.timer.Reset(next.Sub(now))
		select {
		case <-a.changed:
		case <-w.timer.C:
		case <-ctx.Done():
			return nil, a.because(ctx.Err())
		case <-a.r.life.Done():
			return nil, backend.ErrClosed
		}
	}
}

// settle judges a round of questions.
func (w *waiting) settle(t tally) error {
	a := w.ballot
	if t.mine+t.theirs < a.r.quorum {
		a.mu.Lock()
		err := a.silence(t)
		a.mu.Unlock()
		if w.failing.IsZero() {
			w.failing = time.Now()
		}
		if !w.queued && a.unheard(t) && time.Since(w.failing) < a.r.patience(a.req.TTL) {
			return nil
		}
		if !w.queued || errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed) || time.Since(w.failing) >= a.req.TTL {
			return err
		}
		return nil // ride it out
	}
	w.failing = time.Time{}
	if !w.queued && t.theirs > 0 {
		w.queued = true
		if a.req.OnWait != nil {
			a.req.OnWait(&backend.LockedError{Holder: t.rival})
		}
	}
	if t.mine > 0 && t.mine < a.r.quorum && t.lower {
		a.yield()
	}
	return nil
}

// next is when to ask again. While nobody is known to have a majority that is soon.
// Else the first in a queue asks when a majority of leases has ended, of which it is
// told; the others only look whether the first is still there, after half as much
// again, or as much as the lease may become at its first renewal.
func (w *waiting) next(t tally, now time.Time) time.Time {
	a, q := w.ballot, w.r.quorum
	if t.most < q {
		if w.split.IsZero() {
			w.split = now.Add(splitPause + jitter(splitPause))
		}
		if t.mine >= q && t.agree >= q { // too little is left of them
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
	for i := range a.votes {
		v := &a.votes[i]
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
	free := len(a.votes) - t.theirs // and perhaps so many are
	slices.SortFunc(ends, func(a, b time.Time) int { return a.Compare(b) })
	at := asked.Add(foreignPoll)
	if i := max(q-free, 1) - 1; i < len(ends) && (ours || ends[i].Before(at)) {
		at = ends[i].Add(slack())
	}
	if !ours {
		return at
	}
	if bound := max(at.Sub(asked), min(a.req.TTL, lookAgain)); !first {
		at = asked.Add(bound + bound/2 + 50*time.Millisecond)
	}
	return at
}

// Abandon makes sure that nothing remains of an attempt. Nil means that so many
// nodes have acknowledged it that the others are no majority; at those it goes on in
// the background until it has run out by itself.
func (r *Redlock) Abandon(ctx context.Context, req backend.Request) error {
	r.mu.Lock()
	a := r.ballots[req.Owner]
	r.mu.Unlock()
	if a == nil {
		a = r.newBallot(req, queueNo)
		a.anything()
	}
	a.giveUp()
	defer a.forget()
	o, err := r.all(ctx, req.TTL, everyone, func(i int, _ *voter) (reply, error) {
		re, err := a.free(i)
		if err != nil {
			a.clean(i)
		}
		return re, err
	})
	if o.yes+o.no > len(r.nodes)-r.quorum {
		a.freedAll()
		return nil
	}
	if err == nil {
		err = r.failed("abandoned", o.yes+o.no, o.errs)
	}
	return backend.Uncertain(err)
}
