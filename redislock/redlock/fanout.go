package redlock

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
)

// noTTL is the TTL of a request that is about no lease.
const noTTL = time.Minute

// nodeTimeout is how long one node may take for a request with that TTL before the others decide without it.
func (s *service) nodeTimeout(ttl time.Duration) time.Duration { return min(s.opt.nodeTimeout, ttl/4) }

// quorumTimeout is how long to wait for the answers of a quorum.
func (s *service) quorumTimeout(ttl time.Duration) time.Duration {
	return max(s.nodeTimeout(ttl), min(ttl/2, 4*s.opt.nodeTimeout))
}

// reply is what a node has answered.
type reply[T any] struct {
	value T
	err   error // errOverdue: it has not answered yet
}

func (r reply[T]) overdue() bool { return r.err == errOverdue } //nolint:errorlint // the very value

func answered[T any](all []reply[T]) (n int) {
	for _, r := range all {
		if r.err == nil {
			n++
		}
	}
	return n
}

// each calls f for every node at the same time. It returns when enough returns true, which it asks after each answer,
// when all nodes have answered, after nodeTimeout if a quorum has answered, after quorumTimeout, or when ctx ends, with
// its error. Calls of f that have not returned continue until their own context ends, after quorumTimeout.
func each[T any](
	ctx context.Context, s *service, ttl time.Duration, f func(context.Context, int) (T, error), enough func([]reply[T]) bool,
) ([]reply[T], error) {
	type answer struct {
		i int
		reply[T]
	}
	answers, all, open := make(chan answer, len(s.nodes)), make([]reply[T], len(s.nodes)), 0
	for i := range s.nodes {
		all[i].err = backend.ErrClosed
		if s.life.Go(func() {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.quorumTimeout(ttl))
			defer cancel()
			v, err := f(within, i)
			answers <- answer{i, reply[T]{v, err}}
		}) {
			all[i].err = errOverdue
			open++
		}
	}
	soon, late := time.NewTimer(s.nodeTimeout(ttl)), time.NewTimer(s.quorumTimeout(ttl))
	defer soon.Stop()
	defer late.Stop()
	for over := false; !enough(all) && open > 0 && (!over || answered(all) < s.need); {
		select {
		case a := <-answers:
			all[a.i] = a.reply
			open--
		case <-soon.C:
			over = true
			for i, r := range all {
				if r.overdue() {
					s.nodes[i].report(errOverdue, time.Now())
				}
			}
		case <-late.C:
			return all, nil
		case <-ctx.Done():
			return all, ctx.Err()
		case <-s.life.Context().Done():
			return all, backend.ErrClosed
		}
	}
	return all, nil
}

// Conditions for each.
func allNodes[T any](*service) func([]reply[T]) bool { return func([]reply[T]) bool { return false } }
func aQuorum[T any](s *service) func([]reply[T]) bool {
	return func(all []reply[T]) bool { return answered(all) >= s.need }
}
