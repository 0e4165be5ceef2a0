package faults

import (
	"cmp"
	"slices"
	"time"

	"github.com/interlock-go/lock/integration/faults/workload"
)

// member returns the workers of a process. A crowd of ten has 64 readers and 4 writers of one
// key, and 30 users of a semaphore.
func (r *run) member(i int) workload.Config {
	if !r.crowd {
		return workload.Config{Fast: 2, Holders: 2, Leaders: 1}
	}
	cfg := workload.Config{Readers: 6, Permits: 3}
	if i < 4 {
		cfg.Readers, cfg.Writers = 7, 1
	}
	return cfg
}

// allowance is for how long a writer of a crowd may wait besides for those before it. Each kill
// may leave a holder, whose lease ends after a TTL, and waiters, to which the key is granted for
// nothing. The rest is for a busy machine.
func (r *run) allowance(from, to int64) time.Duration {
	bound := r.ttl
	for _, at := range r.kills {
		if from < at+int64(2*r.ttl) && at < to {
			bound += r.ttl + min(r.ttl, 3*time.Second)
		}
	}
	return bound
}

// checkStarved looks for writers that waited for longer than those before them held the key:
// readers that come later do not delay a writer.
func (h *history) checkStarved(ops []workload.Op, grants []*grant, report func(Rule, string, ...any)) {
	for _, op := range ops {
		if op.Kind != workload.Acquired && op.Kind != workload.Refused || !op.Share.Exclusive() || op.Waited == 0 {
			continue
		}
		if idle := aloneFor(op, grants); idle > h.allowance(op.Waited, op.Ret) && !h.stalled(op.Call, op.Ret) {
			report(Starved, "worker %d waited from %s to %s, and for %v of that no worker that came before it held the key", op.Worker, h.at(op.Waited), h.at(op.Ret), idle)
		}
	}
}

// aloneFor returns for how long, while op waited, no lease was held that was asked for before.
func aloneFor(op workload.Op, grants []*grant) (idle time.Duration) {
	before := slices.DeleteFunc(slices.Clone(grants), func(g *grant) bool {
		return g.Call >= op.Waited || g.trusted <= op.Waited || g.Ret >= op.Ret
	})
	slices.SortFunc(before, func(a, b *grant) int { return cmp.Compare(a.Ret, b.Ret) })
	at := op.Waited
	for _, g := range before {
		idle += time.Duration(max(0, g.Ret-at))
		at = max(at, g.trusted)
	}
	return idle + time.Duration(max(0, op.Ret-at))
}
