package redislock

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/interlock-go/lock/backend"
)

// Inspect tells who holds and who waits for a key, by the word of a majority.
func (r *Redlock) Inspect(ctx context.Context, key string) (backend.Info, error) {
	k := keysOf(lockKey(r.opt.prefix, key))
	o, err := r.all(ctx, noTTL, everyone, func(_ int, n *voter) (reply, error) {
		re, err := n.call(inspectScript, []string{k.lock, k.queue, k.fence}, n.b.channelPrefix(), "")
		if err == nil && re.status == wrongType {
			err = wrongTypeError(k.lock, re.str(0))
		}
		return re, err
	})
	if err != nil {
		return backend.Info{}, err
	}
	var infos []backend.Info
	for i, err := range o.errs {
		if err == nil {
			infos = append(infos, info(key, o.replies[i]))
		}
	}
	if len(infos) < r.quorum {
		return backend.Info{}, r.failed("inspected", len(infos), o.errs)
	}
	return r.merge(key, infos), nil
}

// merge makes one of what the nodes that answered say. Who may have a majority, if
// those that did not answer agree, is the holder.
func (r *Redlock) merge(key string, infos []backend.Info) backend.Info {
	votes := map[string][]backend.Holder{}
	var holder string
	type place struct {
		ticket int64
		party  backend.Party
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
			ticket, metadata := cutTicket(w.Metadata)
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
		return cmp.Or(cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.party.Owner, b.party.Owner))
	})
	for _, w := range waiters {
		all.Waiters = append(all.Waiters, w.party)
	}
	return all
}

func (r *Redlock) mergeHolder(hs []backend.Holder) *backend.Holder {
	slices.SortFunc(hs, func(a, b backend.Holder) int { return cmp.Compare(b.Left, a.Left) })
	h := hs[min(r.quorum, len(hs))-1] // a majority keeps it so long
	for _, o := range hs {
		h.Token = max(h.Token, o.Token)
	}
	if !h.Foreign {
		_, h.Metadata = cutTicket(h.Metadata)
	}
	return &h
}

// Break frees a key at all nodes, whoever holds it there.
func (r *Redlock) Break(ctx context.Context, key string) (*backend.Holder, error) {
	k := keysOf(lockKey(r.opt.prefix, key))
	names := r.names(k, "")
	o, err := r.all(ctx, noTTL, everyone, func(_ int, n *voter) (reply, error) {
		re, err := n.call(quorumBreak, names, r.args(0, "")...)
		if err == nil && re.status == wrongType {
			err = wrongTypeError(k.lock, re.str(0))
		}
		return re, err
	})
	if answered := o.yes + o.no; err != nil || answered < r.quorum {
		if err == nil {
			err = r.failed("broken", answered, o.errs)
		}
		return nil, backend.Uncertain(err)
	}
	var infos []backend.Info
	for i, err := range o.errs {
		if err == nil {
			infos = append(infos, info(key, o.replies[i]))
		}
	}
	return r.merge(key, infos).Holder, nil
}

// List lists the keys held at the moment, by the word of a majority. A node that
// hangs holds it up for as long as the client waits for an answer.
func (r *Redlock) List(ctx context.Context, yield func(backend.Info) bool) error {
	lists := make([][]backend.Info, len(r.nodes))
	errs := make([]error, len(r.nodes))
	var all sync.WaitGroup
	for i, n := range r.nodes {
		all.Go(func() {
			_, errs[i] = n.b.list(ctx, n.b.rdb, map[string]bool{}, func(in backend.Info) bool {
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
		return r.failed("listed", answered, errs)
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
