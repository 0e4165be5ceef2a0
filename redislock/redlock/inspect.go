package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// Inspect returns the holder of a key, as a majority knows it. The nodes know no waiters.
func (r *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	s := r.svc
	all, end := each(ctx, s, noTTL, func(ctx context.Context, i int) (*backend.Holder, error) {
		in, err := s.nodes[i].Inspect(ctx, key)
		return in.Holder, err
	}, allNodes[*backend.Holder](s))
	if n := answered(all); end == nil && n < s.need {
		end = failed(s, "answered", n, all)
	}
	if end != nil {
		return backend.Info{}, end
	}
	return backend.Info{Name: key, Holder: s.holder(all)}, nil
}

// holder combines the answers of the nodes. The holder is the attempt that may have a quorum if the nodes that have not
// answered agree.
func (s *service) holder(all []reply[*backend.Holder]) *backend.Holder {
	votes, most := map[string][]backend.Holder{}, []backend.Holder(nil)
	for _, r := range all {
		if h := r.value; r.err == nil && h != nil {
			if votes[h.Owner] = append(votes[h.Owner], *h); len(votes[h.Owner]) > len(most) {
				most = votes[h.Owner]
			}
		}
	}
	if len(most) == 0 || len(most)+len(all)-answered(all) < s.need {
		return nil
	}
	slices.SortFunc(most, func(a, b backend.Holder) int { return cmp.Compare(b.Left, a.Left) })
	h := most[min(s.need, len(most))-1] // a quorum keeps it that long
	for _, o := range most {
		h.Token = max(h.Token, o.Token)
	}
	return &h
}

// breakGrants removes the grants of an owner, or all, at all nodes.
func (s *service) breakGrants(ctx context.Context, e queue.End) queue.Ended {
	all, end := each(ctx, s, noTTL, func(ctx context.Context, i int) (*backend.Holder, error) {
		r := s.nodes[i].End(ctx, e)
		return r.Holder, r.Err
	}, allNodes[*backend.Holder](s))
	if n := answered(all); end != nil || n < s.need {
		return queue.Ended{Err: backend.Uncertain(errors.Join(end, failed(s, "acknowledged the break", n, all)))}
	}
	h := s.holder(all)
	return queue.Ended{Held: h != nil && (e.Owner == "" || h.Owner == e.Owner), Holder: h}
}

// List lists the held keys, as a majority knows them. A node that hangs delays it by the read
// timeout of its client.
func (r *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	s := r.svc
	lists, names := make([]reply[map[string]*backend.Holder], len(s.nodes)), map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i, n := range s.nodes {
		group.Go(func() {
			l := map[string]*backend.Holder{}
			err := n.List(ctx, func(in backend.Info) bool {
				mu.Lock()
				defer mu.Unlock()
				l[in.Name], names[in.Name] = in.Holder, true
				return true
			})
			lists[i] = reply[map[string]*backend.Holder]{l, err}
		})
	}
	group.Wait()
	if n := answered(lists); n < s.need {
		return failed(s, "answered", n, lists)
	}
	for name := range names {
		all := make([]reply[*backend.Holder], len(lists))
		for i, l := range lists {
			all[i] = reply[*backend.Holder]{l.value[name], l.err}
		}
		if h := s.holder(all); h != nil && !yield(backend.Info{Name: name, Holder: h}) {
			return nil
		}
	}
	return nil
}
