package faults

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/faults/workload"
)

// Rule is what a run can violate.
type Rule string

// The rules.
const (
	Exclusion Rule = "exclusion"   // two holders of one key trust their leases at the same time
	Token     Rule = "token"       // a token is not greater than that of an earlier grant
	Fence     Rule = "fence"       // the resource refused a holder within its trust
	Stolen    Rule = "stolen"      // the service denied a trusted lease
	Model     Rule = "model"       // the history is not that of one lock
	Orphan    Rule = "orphan"      // a key stays held, without a holder, for longer than it may
	Forgotten Rule = "forgotten"   // a waiter was not served
	Cut       Rule = "cut off"     // a client got no grant after the last fault
	Order     Rule = "order"       // a waiter was overtaken
	Starved   Rule = "starved"     // a writer waited for others than those before it
	Undecided Rule = "undecided"   // the model checker gave up
	Stuck     Rule = "stuck"       // a client did not end, or ended with an error
	Invalid   Rule = "bad request" // a request was refused as one that can never succeed
)

// Violation is one violation of a rule.
type Violation struct {
	Rule Rule
	Text string
	// History is set for the rule Model.
	History *conformance.HistoryError
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Rule, v.Text) }

// history has all operations of the clients of a run.
type history struct {
	ops     []workload.Op
	keys    []string
	tokens  map[string]uint64 // the last of the runs before
	fenced  bool
	fifo    bool
	begun   int64 // the start of the run
	healed  int64 // no more faults
	bound   time.Duration
	settled int64 // the order of those who came later is judged
	stalls  []stall
	settle  time.Duration // and that of those who came so long after a stall
	// allowance is for how long a writer may wait from and to these times besides for those
	// before it; nil: the rule Starved is not judged.
	allowance func(from, to int64) time.Duration
}

// grant is a lease from its request to its end.
type grant struct {
	workload.Op
	trusted int64 // up to when its holder acts
	lowered int64 // since when it acts as a reader, zero: never
	end     *workload.Op
}

func (h *history) at(t int64) string { return fmt.Sprintf("%.6fs", time.Duration(t-h.begun).Seconds()) }

func (h *history) describe(g *grant) string {
	end := "until its process was killed"
	if g.end != nil {
		end = fmt.Sprintf("%s at %s %s", g.end.Kind, h.at(g.end.Call), g.end.Err)
	}
	return fmt.Sprintf("worker %d, share %v, token %d, asked at %s, granted at %s, trusted until %s, %s", g.Worker, g.Share, g.Token, h.at(g.Call), h.at(g.Ret), h.at(g.trusted), end)
}

// check returns all violations.
func (h *history) check(timeout time.Duration) (found []Violation) {
	byKey := make([][]workload.Op, len(h.keys))
	for _, op := range h.ops {
		byKey[op.Key] = append(byKey[op.Key], op)
	}
	for key, ops := range byKey {
		grants := grantsOf(ops)
		report := func(r Rule, format string, args ...any) {
			found = append(found, Violation{Rule: r, Text: fmt.Sprintf("key %s: ", h.keys[key]) + fmt.Sprintf(format, args...)})
		}
		h.checkExclusion(grants, report)
		if h.fenced {
			h.checkTokens(key, grants, report)
		}
		if h.fifo && h.fenced {
			h.checkOrder(grants, report)
		}
		if h.fifo && h.allowance != nil {
			h.checkStarved(ops, grants, report)
		}
		h.checkOps(ops, report)
		if err := h.replay(ops).Check(timeout); err != nil {
			v := Violation{Rule: Model, Text: fmt.Sprintf("key %s: %v", h.keys[key], err)}
			if errors.Is(err, conformance.ErrUndecided) {
				v.Rule = Undecided
			} else {
				_ = errors.As(err, &v.History)
			}
			found = append(found, v)
		}
	}
	return found
}

// grantsOf returns the grants in the order in which they were received.
func grantsOf(ops []workload.Op) []*grant {
	byHold := map[int]*grant{}
	for _, op := range ops {
		if op.Kind == workload.Acquired {
			byHold[op.Hold] = &grant{Op: op, trusted: math.MaxInt64}
		}
	}
	for _, op := range ops {
		g := byHold[op.Hold]
		switch {
		case g == nil:
		case op.Kind == workload.Released || op.Kind == workload.Lost:
			g.trusted, g.end = op.Call, &op
		case op.Kind == workload.Downgraded:
			g.lowered = op.Call
		}
	}
	return slices.SortedFunc(maps.Values(byHold), func(a, b *grant) int { return cmp.Compare(a.Ret, b.Ret) })
}

// checkTokens compares each token with those of grants received before it was asked
// for.
func (h *history) checkTokens(key int, grants []*grant, report func(Rule, string, ...any)) {
	byCall := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return cmp.Compare(a.Call, b.Call) })
	highest, received := h.tokens[h.keys[key]], 0
	seen := map[uint64]*grant{}
	for _, g := range byCall {
		for ; received < len(grants) && grants[received].Ret < g.Call; received++ {
			highest = max(highest, grants[received].Token)
		}
		if g.Token <= highest {
			report(Token, "%d was granted before: %s", highest, h.describe(g))
		} else if other := seen[g.Token]; other != nil {
			report(Token, "the same token twice:\n\t%s\n\t%s", h.describe(other), h.describe(g))
		}
		seen[g.Token] = g
	}
}

// checkOrder looks, after all faults, for clients that came when another client already
// waited, and were granted before it. A waiter that was stopped meanwhile may have been
// passed over: it did not show that it is alive.
func (h *history) checkOrder(grants []*grant, report func(Rule, string, ...any)) {
	byToken := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return -cmp.Compare(a.Token, b.Token) })
	var first *grant // of those with higher tokens, the one that waited first
	for _, g := range byToken {
		if g.Call < h.settled {
			continue
		}
		if first != nil && first.Waited < g.Call && !h.stalled(first.Call, g.Ret) {
			report(Order, "a waiter (since %s) was overtaken:\n\t%s\n\tby %s", h.at(first.Waited), h.describe(first), h.describe(g))
		}
		if g.Waited != 0 && (first == nil || g.Waited < first.Waited) {
			first = g
		}
	}
}

// stalled reports whether a stall, or the time in which sessions reconnect after it, lies
// between from and to.
func (h *history) stalled(from, to int64) bool {
	return slices.ContainsFunc(h.stalls, func(s stall) bool { return s.from < to && from < s.to+int64(h.settle) })
}

// checkOps checks each operation by itself.
func (h *history) checkOps(ops []workload.Op, report func(Rule, string, ...any)) {
	for _, op := range ops {
		switch {
		case op.Kind == workload.Wrote && op.Sure && !op.OK:
			report(Fence, "worker %d, token %d: a write at %s was refused, though the lease was held before and after it", op.Worker, op.Token, h.at(op.Call))
		case op.Stolen:
			report(Stolen, "worker %d, token %d: released at %s, %v before the end of its trust: %s", op.Worker, op.Token, h.at(op.Call), time.Duration(op.Until-op.Call), op.Err)
		case op.Kind == workload.Refused && op.Err != "" && op.Ret-op.Call <= int64(time.Second):
			report(Invalid, "worker %d: %s", op.Worker, op.Err)
		}
		if (op.Kind == workload.Acquired || op.Kind == workload.Refused) && op.Call < h.healed && op.Ret > h.healed+int64(h.bound) {
			report(Forgotten, "worker %d waited from %s to %s, %v after the last fault: %s", op.Worker, h.at(op.Call), h.at(op.Ret), time.Duration(op.Ret-h.healed), op.Err)
		}
	}
}

// replay makes the history of a key for the model checker.
func (h *history) replay(ops []workload.Op) *conformance.History {
	r := conformance.NewHistory(h.fenced)
	ids := map[int]int{}
	for _, op := range ops {
		if op.Kind == workload.Acquired {
			ids[op.Hold] = r.Acquired(op.Worker, op.Share, workload.Time(op.Call), workload.Time(op.Ret), op.Token)
		}
	}
	for _, op := range ops {
		id := ids[op.Hold]
		switch op.Kind {
		case workload.Downgraded:
			r.Downgraded(op.Worker, id, workload.Time(op.Call))
		case workload.Released:
			r.Released(op.Worker, id, workload.Time(op.Call), workload.Time(op.Ret))
		case workload.Lost:
			r.Lost(op.Worker, id, workload.Time(op.Call))
		case workload.Wrote:
			r.Wrote(op.Worker, id, workload.Time(op.Call), workload.Time(op.Ret), op.Token, op.OK)
		}
	}
	return r
}
