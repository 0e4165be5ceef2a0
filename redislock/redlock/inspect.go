package redlock

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// Inspect returns the holder and the waiters of a key, as a majority knows them.
func (r *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	k := r.keys(key)
	o, err := r.all(ctx, noTTL, allNodes, func(_ int, n *node) (protocol.Reply, error) {
		re, err := n.call(wire.Inspect, k.Script(), n.r.proc.ChannelPrefix(), "")
		if err == nil {
			err = wire.CheckType(re, k)
		}
		return re, err
	})
	if err != nil {
		return backend.Info{}, err
	}
	infos := o.infos(key)
	if len(infos) < r.quorum {
		return backend.Info{}, r.failed("answered", len(infos), o.errs)
	}
	return r.merge(key, infos), nil
}

// infos returns what the nodes that have answered know about a key.
func (o outcome) infos(key string) (all []backend.Info) {
	for i, err := range o.errs {
		if err == nil {
			all = append(all, wire.Info(o.replies[i], key))
		}
	}
	return all
}

// merge combines the answers of the nodes. The holder is the attempt that may have a quorum if
// the nodes that have not answered agree.
func (r *Backend) merge(key string, infos []backend.Info) backend.Info {
	votes := map[string][]backend.Holder{}
	var holder string
	type place struct {
		ticket int64
		waiter backend.Contender
	}
	places := map[string]place{}
	for _, i := range infos {
		if h := i.Holder; h != nil {
			votes[h.Owner] = append(votes[h.Owner], *h)
			if len(votes[h.Owner]) > len(votes[holder]) {
				holder = h.Owner
			}
		}
		for _, w := range i.Waiters {
			ticket, metadata := wire.CutTicket(w.Metadata)
			w.Metadata = metadata
			places[w.Owner] = place{ticket, w}
		}
	}
	all := backend.Info{Name: key}
	if n := len(votes[holder]); n > 0 && n+len(r.nodes)-len(infos) >= r.quorum {
		all.Holder = r.mergeHolder(votes[holder])
		delete(places, holder)
	}
	var waiters []place
	for _, p := range places {
		waiters = append(waiters, p)
	}
	slices.SortFunc(waiters, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.waiter.Owner, b.waiter.Owner))
	})
	for _, w := range waiters {
		all.Waiters = append(all.Waiters, w.waiter)
	}
	return all
}

func (r *Backend) mergeHolder(hs []backend.Holder) *backend.Holder {
	slices.SortFunc(hs, func(a, b backend.Holder) int { return cmp.Compare(b.Left, a.Left) })
	h := hs[min(r.quorum, len(hs))-1] // a quorum keeps it that long
	for _, o := range hs {
		h.Token = max(h.Token, o.Token)
	}
	return &h
}

// Break implements backend.Breaker: it removes the votes of owner, or all of them, at all
// nodes.
func (r *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	k := r.keys(key)
	names := r.names(k, "")
	o, err := r.all(ctx, noTTL, allNodes, func(_ int, n *node) (protocol.Reply, error) {
		re, err := n.call(wire.Break, names, n.args(0, owner)...)
		if err == nil {
			n.follow(k, re.Num(3))
			err = wire.CheckType(re, k)
		}
		return re, err
	})
	if answered := o.yes + o.no; err != nil || answered < r.quorum {
		if err == nil {
			err = r.failed("acknowledged the break", answered, o.errs)
		}
		return nil, backend.Uncertain(err)
	}
	h := r.merge(key, o.infos(key)).Holder
	if h != nil && owner != "" && owner != h.Owner {
		return nil, &backend.LockedError{Holder: *h}
	}
	return h, nil
}

// inspection returns the call of INSPECT for a lock.
func (r *Backend) inspection(name string) server.Call {
	return server.Call{Keys: r.keys(name).Script(), Args: []any{r.proc.ChannelPrefix(), ""}}
}

// List lists the held keys, as a majority knows them. A node that hangs delays it by the read
// timeout of its client.
func (r *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	lists := make([][]backend.Info, len(r.nodes))
	errs := make([]error, len(r.nodes))
	var all sync.WaitGroup
	for i, n := range r.nodes {
		all.Go(func() {
			errs[i] = n.srv.List(ctx, r.proc, wire.Inspect, r.inspection, wire.Info, func(in backend.Info) bool {
				lists[i] = append(lists[i], in)
				return true
			})
		})
	}
	all.Wait()
	answered := 0
	found := map[string][]backend.Info{}
	for i, err := range errs {
		if err != nil {
			continue
		}
		answered++
		for _, in := range lists[i] {
			found[in.Name] = append(found[in.Name], in)
		}
	}
	if answered < r.quorum {
		return r.failed("answered", answered, errs)
	}
	for name, infos := range found {
		for len(infos) < answered { // the others said that it is free
			infos = append(infos, backend.Info{Name: name})
		}
		if i := r.merge(name, infos); i.Holder != nil && !yield(i) {
			return nil
		}
	}
	return nil
}
