package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/quorum"
)

// service is the queue.Service that a quorum of nodes is. It keeps no queue.
type service struct {
	nodes  []*node
	need   int // nodes that are a quorum
	opt    options
	life   *call.Life
	clock  clock
	events queue.Events // set before the first request
	keys   contentions
	status atomic.Pointer[func(string, error)] // set by ReportStatus

	mu       sync.Mutex
	attempts map[string]*attempt // by owner id, while something of them may be at a node
}

var (
	_ queue.Unordered = (*service)(nil)
	_ queue.Pusher    = (*service)(nil)
)

// Unordered implements queue.Unordered.
func (*service) Unordered() {}

// Acquire implements queue.Service. It asks all nodes. If no quorum grants the key, it releases it at the others.
func (s *service) Acquire(ctx context.Context, at queue.Attempt) (queue.Answer, error) {
	if err := ctx.Err(); err != nil {
		return queue.Answer{}, backend.NotExecuted(err)
	}
	sent := time.Now()
	if left := s.keys.yields(at.Key); left > 0 {
		return queue.Answer{Sent: sent, Left: left, Watch: true}, nil
	}
	a, c := s.attempt(at.Request), s.keys.asks(at.Key)
	t, end := a.ask(ctx)
	s.suspect(t.all)
	if t.agreed >= s.need && a.hold(t.token) {
		s.keys.asked(c, at.Owner, false)
		return queue.Answer{Sent: sent, Granted: true, Token: t.token, Left: at.TTL}, nil
	}
	holder := ""
	if t.rivalVotes >= s.need {
		holder = t.rival.Owner
	}
	soon := s.keys.asked(c, holder, at.Mode == queue.NoQueue) || holder == ""
	if a.giveUp(); end == nil {
		a.undo(ctx)
		end = ctx.Err()
	}
	if a.isSpoiled() {
		return queue.Answer{}, queue.Final(backend.Uncertain(errSpoiled))
	}
	votes := len(t.mine) + t.theirs
	if end == nil && t.theirs > 0 && votes >= s.need {
		if holder != "" {
			s.keys.overtaken(at.Key)
		}
		return queue.Answer{Sent: sent, Holder: t.rival, Left: a.again(&t, sent, soon), Watch: true}, nil
	}
	err := t.err(s)
	switch {
	case end != nil && votes >= s.need:
		err = end
	case end != nil:
		err = fmt.Errorf("%w: %w", end, err)
	}
	if a.mayRemain() {
		return queue.Answer{}, backend.Uncertain(err)
	}
	return queue.Answer{}, backend.NotExecuted(err)
}

// Renew implements queue.Service.
func (s *service) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	if len(holds) != 1 { // it would wait for the slowest of many
		err := fmt.Errorf("redlock: renewing many at once: %w", errors.ErrUnsupported)
		return slices.Repeat([]queue.Renewed{{Err: err}}, len(holds))
	}
	h, sent := holds[0], time.Now()
	a := s.attempt(backend.Request{Key: h.Key, Owner: h.Owner, TTL: h.TTL})
	yes, no := 0, 0
	all, end := each(ctx, s, h.TTL, func(ctx context.Context, i int) (offset, error) {
		r := s.nodes[i].Renew(ctx, holds)[0]
		s.nodes[i].report(r.Err, sent)
		if errors.Is(r.Err, backend.ErrLost) {
			a.missing(i)
		}
		return offsetOf(r.Now, r.Sent), r.Err
	}, func(all []reply[offset]) bool {
		offsets := map[int]offset{}
		no = 0
		for i, r := range all {
			if r.err == nil {
				offsets[i] = r.value
			} else if errors.Is(r.err, backend.ErrLost) {
				no++
			}
		}
		yes = len(agreeing(offsets, len(all)))
		return yes >= s.need || no > len(all)-s.need
	})
	switch {
	case yes >= s.need:
		if !h.Exactly {
			a.retake()
		}
		return []queue.Renewed{{Sent: sent}}
	case no > len(all)-s.need:
		a.endEverywhere()
		return []queue.Renewed{{Err: fmt.Errorf("%w: %w", backend.ErrLost, failed(s, "have renewed it", answered(all), all))}}
	}
	err := failed(s, "acknowledged the renewal", yes, all)
	if end != nil {
		err = fmt.Errorf("%w: %w", end, err)
	}
	if slices.ContainsFunc(all, func(r reply[offset]) bool { return r.err == nil || backend.OutcomeUnknown(r.err) }) {
		return []queue.Renewed{{Err: backend.Uncertain(err)}}
	}
	return []queue.Renewed{{Err: backend.NotExecuted(err)}}
}

// End implements queue.Service.
func (s *service) End(ctx context.Context, ends []queue.End) []queue.Ended {
	switch e := ends[0]; {
	case len(ends) > 1:
		err := fmt.Errorf("redlock: ending many at once: %w", errors.ErrUnsupported)
		return slices.Repeat([]queue.Ended{{Err: err}}, len(ends))
	case e.Kind == queue.Break:
		return []queue.Ended{s.breakGrants(ctx, e)}
	case e.Kind == queue.Downgrade:
		return []queue.Ended{{Err: backend.Invalid("share", "of a reader", "an exclusive lock: Redlock has no shares")}}
	default:
		return []queue.Ended{s.end(ctx, e)}
	}
}

// end ends an attempt at all nodes. It is done when those that have not acknowledged it are no quorum.
func (s *service) end(ctx context.Context, e queue.End) queue.Ended {
	a := s.known(e.Owner)
	if a == nil { // of another process
		a, e.Late = s.attempt(e.Request), true
	}
	a.end()
	held, denied, waiting, others := 0, 0, 0, len(s.nodes)-s.need
	all, end := each(ctx, s, cmp.Or(e.TTL, noTTL), func(ctx context.Context, i int) (quorum.Ended, error) {
		r := a.endAt(ctx, i, e.Late)
		return r, r.Err
	}, func(all []reply[quorum.Ended]) bool {
		held, denied = 0, 0
		for _, r := range all {
			switch {
			case r.err != nil:
			case r.value.Held:
				held, waiting = held+1, max(waiting, r.value.Waiting)
			default:
				denied++
			}
		}
		return held >= s.need || denied > others || e.Kind == queue.Abandon && held+denied > others
	})
	if s.Listening(e.Key) {
		waiting-- // this process
	}
	switch {
	case denied > others:
		s.forget(a.req.Owner)
		return queue.Ended{}
	case held+denied > others:
		s.keys.released(e.Key, e.Owner, waiting)
		s.forget(a.req.Owner)
		return queue.Ended{Held: true}
	}
	err := failed(s, "acknowledged the end of the attempt", held+denied, all)
	if end != nil {
		err = fmt.Errorf("%w: %w", end, err)
	}
	return queue.Ended{Err: backend.Uncertain(err)}
}

// Pass implements queue.Service: there are no provisional grants.
func (*service) Pass(context.Context, string, bool) (queue.Passed, error) { return queue.Passed{}, nil }

// Close implements queue.Service.
func (s *service) Close(ctx context.Context) error {
	s.life.Stop()
	errs := make([]error, len(s.nodes))
	var all sync.WaitGroup
	for i, n := range s.nodes {
		all.Go(func() { errs[i] = n.Close(ctx) })
	}
	all.Wait()
	return errors.Join(append(errs, s.life.Close(ctx))...)
}
