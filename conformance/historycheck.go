package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// ErrUndecided is what [History.Check] returns if it ran out of time.
var ErrUndecided = errors.New("it could not be decided in time whether the history is that of one lock")

// HistoryError is a history, or a part of one, that no lock can have.
type HistoryError struct {
	// Where names the operations around the place where it goes wrong.
	Where string

	model porcupine.Model
	ops   []porcupine.Operation
}

func (e *HistoryError) Error() string {
	return "there is no order in which the operations are those of one lock with rising tokens; where it goes wrong:\n" + e.Where
}

// Visualize writes a picture of that part, as a page of HTML: what could be
// ordered, and what could not.
func (e *HistoryError) Visualize(w io.Writer) error {
	_, info := porcupine.CheckOperationsVerbose(e.model, e.ops, 10*time.Second)
	return porcupine.Visualize(e.model, info, w)
}

// Check returns nil if the operations can be put into an order, each at some time
// between its call and its return, in which they are those of one lock; a
// [*HistoryError] if they cannot; [ErrUndecided] if the search took longer than timeout.
// All holds should have been recorded as released or lost.
func (h *History) Check(timeout time.Duration) error {
	h.mu.Lock()
	ops := slices.Clone(h.ops)
	h.mu.Unlock()
	end := time.Now().Add(timeout)
	state := lockState{}
	for _, part := range cut(ops, partLength) {
		m := lockModel(h.fenced, state)
		switch porcupine.CheckOperationsTimeout(m, inOrder(part.ops, state.token), max(time.Until(end), time.Millisecond)) {
		case porcupine.Ok:
			state = part.after
		case porcupine.Unknown:
			return fmt.Errorf("%w: %d operations, %v", ErrUndecided, len(ops), timeout)
		default:
			return &HistoryError{Where: suspects(m, part.ops, state.token), model: m, ops: inOrder(part.ops, state.token)}
		}
	}
	return nil
}

// inOrder sets the token before each grant, where last is that before all. All grants must be
// put into the order of their tokens, so the checker need not try others: there are too many
// among the waiters of a semaphore.
func inOrder(ops []porcupine.Operation, last uint64) []porcupine.Operation {
	tokens := []uint64{last}
	for _, op := range ops {
		if in := op.Input.(opInput); in.kind == opAcquire {
			tokens = append(tokens, in.token)
		}
	}
	slices.Sort(tokens)
	ops = slices.Clone(ops)
	for i, op := range ops {
		in := op.Input.(opInput)
		in.before = math.MaxUint64 // none: the token is lower than the last
		if n, _ := slices.BinarySearch(tokens, in.token); n > 0 {
			in.before = tokens[n-1]
		}
		ops[i].Input = in
	}
	return ops
}

// partLength is after how many operations a history is cut. The checker's memory
// grows with the square of what it is given at once.
const partLength = 400

type historyPart struct {
	ops   []porcupine.Operation
	after lockState
}

// cut divides a history at times when the state of the lock is certain: after an exclusive
// grant was received and before its end or a downgrade was asked for, with no write under way and
// no other client that trusts a grant. What was under way then and is no grant has taken
// effect before, and a grant under way will take effect later: the lock is held.
func cut(ops []porcupine.Operation, length int) []historyPart {
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	type hold struct{ from, lowered, to int64 } // received, the downgrade and the end asked for
	holds := map[int]*hold{}
	for _, op := range ops {
		switch in := op.Input.(opInput); in.kind {
		case opAcquire:
			holds[in.hold] = &hold{op.Return, never, never}
		case opLower:
			if h := holds[in.hold]; h != nil {
				h.lowered = op.Call
			}
		case opRelease, opEnd:
			if h := holds[in.hold]; h != nil {
				h.to = min(h.to, op.Call)
			}
		}
	}
	var parts []historyPart
	rest := ops
	fence := uint64(0)
	for len(rest) > length {
		at, holder := int64(0), opInput{}
	search:
		for _, op := range rest[length:] {
			in := op.Input.(opInput)
			h := holds[in.hold]
			if in.kind != opAcquire || !in.share.Exclusive() || h.from >= min(h.lowered, h.to) || h.to == never {
				continue
			}
			for id, other := range holds {
				if id != in.hold && other.from <= h.from && h.from < other.to {
					continue search
				}
			}
			for _, o := range rest {
				if o.Input.(opInput).kind == opWrite && o.Call <= h.from && h.from < o.Return {
					continue search
				}
			}
			at, holder = h.from, in
			break
		}
		if holder.hold == 0 {
			break
		}
		var part historyPart
		var later []porcupine.Operation
		for _, op := range rest {
			in := op.Input.(opInput)
			switch {
			case op.Return <= at:
			case op.Call > at, in.kind == opAcquire:
				op.Call = max(op.Call, at+1)
				op.Return = max(op.Return, op.Call)
				later = append(later, op)
				continue
			default:
				op.Return = at
			}
			if in.kind == opWrite && op.Output == true {
				fence = max(fence, in.token)
			}
			part.ops = append(part.ops, op)
		}
		part.after = lockState{exclusive: holder.hold, token: holder.token, fence: fence}
		parts = append(parts, part)
		rest = later
	}
	return append(parts, historyPart{ops: rest})
}

// suspects shows the operations around the end of the longest prefix that fits.
func suspects(m porcupine.Model, ops []porcupine.Operation, last uint64) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	fits := func(n int) bool {
		return porcupine.CheckOperationsTimeout(m, inOrder(ops[:n], last), 2*time.Second) != porcupine.Illegal
	}
	lo, hi := 0, len(ops) // fits(lo), !fits(hi)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; fits(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	var b strings.Builder
	for i := max(0, hi-8); i < min(len(ops), hi+2); i++ {
		op := ops[i]
		ret := "never"
		if op.Return != never {
			ret = fmt.Sprintf("%.6fs", time.Duration(op.Return).Seconds())
		}
		fmt.Fprintf(&b, "client %d [%.6fs, %s] %s\n", op.ClientId, time.Duration(op.Call).Seconds(), ret, m.DescribeOperation(op.Input, op.Output))
	}
	return strings.TrimRight(b.String(), "\n")
}
