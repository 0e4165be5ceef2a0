package faults

import (
	"cmp"
	"slices"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// use is a time in which the holder of a grant acts with a share: from the receipt of the grant
// to the end of trust in it, or to a downgrade and from there.
type use struct {
	*grant
	share    lock.Share
	from, to int64
}

func usesOf(grants []*grant) (uses []use) {
	for _, g := range grants {
		if g.lowered != 0 && g.lowered < g.trusted {
			uses = append(uses, use{g, g.Share, g.Ret, g.lowered}, use{g, backend.Reader, g.lowered, g.trusted})
		} else {
			uses = append(uses, use{g, g.Share, g.Ret, g.trusted})
		}
	}
	uses = slices.DeleteFunc(uses, func(u use) bool { return u.from >= u.to })
	slices.SortFunc(uses, func(a, b use) int { return cmp.Compare(a.from, b.from) })
	return uses
}

// checkExclusion looks for shares that are used at the same time and do not fit beside each
// other: an exclusive one beside any other, more weight than the capacity, or a slot twice.
func (h *history) checkExclusion(grants []*grant, report func(Rule, string, ...any)) {
	var held []use
	for _, u := range usesOf(grants) {
		held = slices.DeleteFunc(held, func(o use) bool { return o.to <= u.from })
		weight := u.share.Weight
		for _, o := range held {
			weight += o.share.Weight
			switch both := time.Duration(min(o.to, u.to) - u.from); {
			case o.share.Exclusive() || u.share.Exclusive():
				report(Exclusion, "two holders for %v:\n\t%s\n\t%s", both, h.describe(o.grant), h.describe(u.grant))
			case slices.ContainsFunc(u.Slots, func(slot int) bool { return slices.Contains(o.Slots, slot) }):
				report(Exclusion, "two holders of a slot for %v, with the slots %v and %v:\n\t%s\n\t%s", both, o.Slots, u.Slots, h.describe(o.grant), h.describe(u.grant))
			}
		}
		if u.share.Capacity > 0 && weight > u.share.Capacity {
			report(Exclusion, "%d of %d permits held at %s, the last of them by %s", weight, u.share.Capacity, h.at(u.from), h.describe(u.grant))
		}
		held = append(held, u)
	}
}
