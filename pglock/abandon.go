package pglock

import (
	"bytes"
	"context"
	"slices"

	"github.com/interlock-go/lock/backend"
)

// abandonPage is the number of attempts that one transaction abandons.
const abandonPage = 50

// abandoning is an attempt to abandon.
type abandoning struct {
	ending
	i int      // in the batch
	a *attempt // nil if it is not registered
}

func (b *Backend) abandoning(i int, req backend.Request) abandoning {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.attempts[req.Owner]
	tombstone := a == nil || a.state != settled
	if tombstone {
		delete(b.attempts, req.Owner)
	}
	shares := !req.Share.Exclusive() || a != nil && a.shares
	e := ending{key: b.key(req.Key), owner: req.Owner, kind: "release", leave: true, tombstone: tombstone, shares: shares}
	return abandoning{e, i, a}
}

// Abandon ends an attempt: it leaves the queue or releases the grant. It leaves a tombstone,
// which refuses requests that arrive later, unless each request of the attempt had a reply.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	return b.AbandonBatch(ctx, []backend.Request{req})[0]
}

// AbandonBatch abandons attempts, 50 in a transaction and a round trip. A transaction that the
// server rolls back, or that waits for a row for a second, is divided.
func (b *Backend) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	all, errs := make([]abandoning, len(reqs)), make([]error, len(reqs))
	for i, req := range reqs {
		all[i] = b.abandoning(i, req)
	}
	// In one order, so that two batches do not wait for each other.
	slices.SortFunc(all, func(x, y abandoning) int { return bytes.Compare(x.key, y.key) })
	for _, shares := range []bool{false, true} {
		alike := slices.DeleteFunc(slices.Clone(all), func(a abandoning) bool { return a.shares != shares })
		for page := range slices.Chunk(alike, abandonPage) {
			b.abandonAll(ctx, page, errs)
		}
	}
	return errs
}

// abandonAll abandons attempts on locks that are all known to be used with shares, or all not.
func (b *Backend) abandonAll(ctx context.Context, all []abandoning, errs []error) {
	var calls []call
	retryFor := noRetry
	if len(all) == 1 {
		retryFor = 0
	} else {
		calls = append(calls, do("SELECT set_config('lock_timeout', '1s', true)"))
	}
	for _, a := range all {
		calls = append(calls, b.endCalls(a.ending)...)
	}
	released, err := b.endAll(ctx, retryFor, calls)
	if rolledBack(err) && len(all) > 1 {
		b.abandonAll(ctx, all[:len(all)/2], errs)
		b.abandonAll(ctx, all[len(all)/2:], errs)
		return
	}
	again, byOwner := []abandoning(nil), map[string]abandoning{}
	for _, a := range all {
		byOwner[a.owner] = a
	}
	for _, r := range released {
		switch a := byOwner[r.asked]; {
		case r.again && !a.shares:
			a.shares = true
			again = append(again, a)
			delete(byOwner, r.asked)
		case r.handedOver:
			b.watch(a.key, r.processes)
		}
	}
	for _, a := range byOwner {
		if errs[a.i] = err; err == nil && a.a != nil {
			a.a.unregister()
		}
	}
	if len(again) > 0 {
		b.abandonAll(ctx, again, errs)
	}
}
