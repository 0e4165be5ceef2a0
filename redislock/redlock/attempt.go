package redlock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/quorum"
)

// attempt is what is known of an attempt. It asks all nodes in rounds. What nodes grant in a round that has failed is
// released before the next one.
type attempt struct {
	s   *service
	req backend.Request

	mu     sync.Mutex // guards the fields below
	votes  []vote     // by node
	rounds int
	round  int // the present one; 0: it has failed, or the attempt has ended
	holds  bool
	token  uint64
	splits int // rounds in a row in which no attempt had a majority
	broken int // grants of nodes that were broken
}

// vote is what is known of an attempt at one node.
type vote struct {
	turn    chan struct{} // capacity 1; full while a request of the attempt to the node has no answer
	granted bool          // the node may keep a grant
	dirty   bool          // a request had no answer: the node may still execute it
	spoiled bool          // that is a release, by which a later grant would end
	missing bool          // the node has lost the grant
}

func (v *vote) mayRemain() bool { return v.granted || v.dirty || len(v.turn) > 0 }

// attempt returns the attempt of a request.
func (s *service) attempt(req backend.Request) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attempts[req.Owner]
	if a == nil {
		a = &attempt{s: s, req: req, votes: make([]vote, len(s.nodes))}
		for i := range a.votes {
			a.votes[i].turn = make(chan struct{}, 1)
		}
		s.attempts[req.Owner] = a
	}
	return a
}

// known returns an attempt, nil if it is not known.
func (s *service) known(owner string) *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[owner]
}

func (s *service) forget(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.attempts, owner)
}

// enter waits until the earlier request of the attempt to a node has an answer. It returns false if ctx ends before.
func (v *vote) enter(ctx context.Context) bool {
	select {
	case v.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (v *vote) leave() { <-v.turn }

// ask makes a round. If the tokens of a quorum differ, it asks again for the greatest: the quorum of the next grant may
// share a single node with this one, and must find the token there.
func (a *attempt) ask(ctx context.Context) (t tally, end error) {
	a.mu.Lock()
	if !a.holds { // a holder asks again in its round
		a.rounds++
		a.round = a.rounds
	}
	round, least := a.round, a.token
	a.mu.Unlock()
	if least == 0 {
		least = a.s.clock.now()
	}
	for range a.votes { // another node may have a greater one yet
		token := least
		_, end = each(ctx, a.s, a.req.TTL, func(ctx context.Context, i int) (answer, error) {
			return a.askAt(ctx, i, round, token)
		}, func(all []reply[answer]) bool {
			t = a.s.count(all)
			return t.decided(a.s)
		})
		if end != nil || len(t.mine) < a.s.need || t.agreed >= a.s.need {
			break
		}
		least = t.token
	}
	return t, end
}

// askAt asks one node, as a part of a round.
func (a *attempt) askAt(ctx context.Context, i, round int, least uint64) (answer, error) {
	n, v := a.s.nodes[i], &a.votes[i]
	leave, ok := n.enter(ctx)
	if !ok {
		return answer{}, backend.NotExecuted(errOut)
	}
	defer leave()
	if !v.enter(ctx) {
		return answer{}, backend.NotExecuted(fmt.Errorf("an earlier request had %w", errOverdue))
	}
	defer v.leave()
	if !a.current(round) {
		return answer{}, backend.NotExecuted(errEnded)
	}
	sent := time.Now()
	r, err := n.Acquire(ctx, a.req, least)
	ans := answer{r, offsetOf(r.Now, r.Sent)}
	a.mu.Lock()
	if err == nil && r.Granted {
		v.granted, v.missing = true, false
	}
	v.dirty = v.dirty || backend.OutcomeUnknown(err)
	spoiled := v.spoiled
	a.mu.Unlock()
	switch {
	case err != nil:
	case r.Refused:
		err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	default:
		err = n.votes(r.Life)
	}
	n.report(err, sent)
	if r.Granted {
		ans.Token = max(r.Token, least) // it was raised
		if !a.current(round) {
			a.undoAt(ctx, i)
		}
		if err == nil && spoiled {
			err = errUnconfirmed
		}
	}
	return ans, err
}

func (a *attempt) current(round int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.round == round
}

// hold makes the attempt a holder. It returns false if its grants were broken meanwhile.
func (a *attempt) hold(token uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.round != 0 {
		a.holds, a.token, a.splits = true, token, 0
	}
	return a.round != 0
}

// giveUp ends a round without a grant. A holder that has asked again stays one.
func (a *attempt) giveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.holds {
		a.round = 0
	}
}

// undo releases what a round that has failed was granted.
func (a *attempt) undo(ctx context.Context) {
	a.mu.Lock()
	nothing := a.holds || !slices.ContainsFunc(a.votes, func(v vote) bool { return v.granted })
	a.mu.Unlock()
	if nothing {
		return
	}
	_, _ = each(ctx, a.s, a.req.TTL, func(ctx context.Context, i int) (any, error) {
		v := &a.votes[i]
		a.mu.Lock()
		granted := v.granted
		a.mu.Unlock()
		if granted && v.enter(ctx) {
			defer v.leave()
			a.undoAt(ctx, i)
		}
		return nil, nil
	}, allNodes[any](a.s))
}

// undoAt releases the grant of a node. The caller has the turn.
func (a *attempt) undoAt(ctx context.Context, i int) {
	r := a.s.nodes[i].End(ctx, queue.End{Request: a.req})
	a.mu.Lock()
	defer a.mu.Unlock()
	v, lost := &a.votes[i], backend.OutcomeUnknown(r.Err)
	v.granted, v.dirty, v.spoiled = r.Err != nil, v.dirty || lost, v.spoiled || lost
}

// isSpoiled reports whether so many nodes may still execute a release of the attempt that it can get no quorum any more.
func (a *attempt) isSpoiled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, v := range a.votes {
		if v.spoiled {
			n++
		}
	}
	return !a.holds && n > len(a.votes)-a.s.need
}

// mayRemain reports whether something of the attempt may be at a node.
func (a *attempt) mayRemain() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.votes, func(v vote) bool { return v.mayRemain() })
}

// missing records that a node has lost the grant.
func (a *attempt) missing(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.votes[i].missing = true
}

// retake asks for the key of a holder at nodes without the grant, after a quorum has confirmed it. So all nodes may be
// restarted in turn under a holder. The next renewals show what comes of it.
func (a *attempt) retake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	round, token := a.round, a.token
	for i, v := range a.votes {
		if a.holds && (v.missing || !v.granted) && len(v.turn) == 0 {
			a.s.life.Go(func() {
				ctx, cancel := context.WithTimeout(a.s.life.Context(), a.s.nodeTimeout(a.req.TTL))
				defer cancel()
				_, _ = a.askAt(ctx, i, round, token)
			})
		}
	}
}

// lost records that a grant was broken at a node. It reports whether no quorum can have it any more.
func (a *attempt) lost() (certain, held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken++; a.broken <= len(a.votes)-a.s.need {
		return false, false
	}
	held = a.holds
	a.broken, a.round, a.holds, a.token = 0, 0, false, 0
	return true, held
}

// end makes the attempt ask no more.
func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.round, a.holds = 0, false
}

// endAt ends the attempt at one node, or leaves that to the node's leftovers if it fails. late: the node must refuse
// what arrives later.
func (a *attempt) endAt(ctx context.Context, i int, late bool) quorum.Ended {
	v := &a.votes[i]
	within, cancel := context.WithTimeout(ctx, a.s.nodeTimeout(max(a.req.TTL, time.Second)))
	defer cancel()
	entered := v.enter(within) // usually the answer comes soon, and there will be no late request
	if entered {
		defer v.leave()
	}
	a.mu.Lock()
	late = late || v.dirty || !entered
	nothing := !late && !v.granted
	a.mu.Unlock()
	if nothing {
		return quorum.Ended{}
	}
	sent := time.Now()
	r := a.s.nodes[i].End(ctx, queue.End{Request: a.req, Late: late})
	a.s.nodes[i].report(r.Err, sent)
	if r.Err != nil {
		a.s.nodes[i].endLater(a.req)
		return r
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	v.granted, v.dirty = false, false
	return r
}

// endEverywhere ends, in the background, an attempt that its caller does not end.
func (a *attempt) endEverywhere() {
	a.end()
	if !a.mayRemain() {
		a.s.forget(a.req.Owner)
		return
	}
	a.s.life.Go(func() { a.s.end(a.s.life.Context(), queue.End{Request: a.req}) })
}
