package conformance

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/interlock-go/lock/backend"
)

// step is an operation of a history written by hand, in milliseconds.
type step struct {
	kind      opKind
	hold      int
	token     uint64
	call, ret int64
}

func (s step) operation() porcupine.Operation {
	return porcupine.Operation{Input: opInput{kind: s.kind, hold: s.hold, token: s.token}, Output: s.kind != opWrite || s.ret%10 == 0, Call: s.call, Return: s.ret}
}

func TestModel(t *testing.T) {
	const accepted, refused = 0, 1 // the last digit of the time at which a write returns
	for _, tt := range []struct {
		name  string
		steps []step
		ok    bool
	}{
		{"one after the other", []step{
			{opAcquire, 1, 1, 0, 10}, {opRelease, 1, 0, 20, 30}, {opAcquire, 2, 2, 15, 40}, {opRelease, 2, 0, 50, 60},
		}, true},
		{"granted before the release began", []step{
			{opAcquire, 1, 1, 0, 10}, {opAcquire, 2, 2, 5, 15}, {opRelease, 1, 0, 20, 30}, {opRelease, 2, 0, 40, 50},
		}, false},
		{"the token is repeated", []step{
			{opAcquire, 1, 1, 0, 10}, {opRelease, 1, 0, 20, 30}, {opAcquire, 2, 1, 40, 50},
		}, false},
		{"the token falls", []step{
			{opAcquire, 1, 7, 0, 10}, {opRelease, 1, 0, 20, 30}, {opAcquire, 2, 3, 40, 50},
		}, false},
		{"tokens against the order of the grants", []step{
			{opAcquire, 1, 2, 0, 10}, {opRelease, 1, 0, 20, 30}, {opAcquire, 2, 1, 5, 50}, {opRelease, 2, 0, 60, 70},
		}, false},
		{"a lost hold ends some time after its trust", []step{
			{opAcquire, 1, 1, 0, 10}, {opEnd, 1, 0, 100, never}, {opAcquire, 2, 2, 20, 120}, {opRelease, 2, 0, 130, 140},
		}, true},
		{"a successor was granted while the hold was trusted", []step{
			{opAcquire, 1, 1, 0, 10}, {opEnd, 1, 0, 100, never}, {opAcquire, 2, 2, 20, 90}, {opRelease, 2, 0, 130, 140},
		}, false},
		{"a release that was acknowledged, of a lock that no client held", []step{
			{opAcquire, 1, 1, 0, 10}, {opRelease, 1, 0, 20, 30}, {opRelease, 1, 0, 40, 50},
		}, false},
		{"a stale write is refused", []step{
			{opAcquire, 1, 1, 0, 10}, {opEnd, 1, 0, 20, never}, {opAcquire, 2, 2, 15, 40},
			{opWrite, 2, 2, 50, 60 + accepted}, {opWrite, 1, 1, 70, 80 + refused},
		}, true},
		{"a stale write is accepted", []step{
			{opAcquire, 1, 1, 0, 10}, {opEnd, 1, 0, 20, never}, {opAcquire, 2, 2, 15, 40},
			{opWrite, 2, 2, 50, 60 + accepted}, {opWrite, 1, 1, 70, 80 + accepted},
		}, false},
		{"the holder's write is refused", []step{
			{opAcquire, 1, 1, 0, 10}, {opWrite, 1, 1, 20, 30 + refused}, {opRelease, 1, 0, 40, 50},
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := NewHistory(true)
			for _, s := range tt.steps {
				h.ops = append(h.ops, s.operation())
			}
			err := h.Check(time.Minute)
			if tt.ok {
				if err != nil {
					t.Errorf("want nil, got %v", err)
				}
				return
			}
			var wrong *HistoryError
			if !errors.As(err, &wrong) {
				t.Fatalf("want a HistoryError, got %v", err)
			}
			if !strings.Contains(wrong.Where, "grant") {
				t.Errorf("want the suspects named, got %q", wrong.Where)
			}
			var page bytes.Buffer
			if err := wrong.Visualize(&page); err != nil || !strings.Contains(page.String(), "grant 1") {
				t.Errorf("want a page that shows the grants, got %d bytes, %v", page.Len(), err)
			}
		})
	}
}

func TestModelOfShares(t *testing.T) {
	var h *History
	var token uint64
	at := func(ms int) time.Time { return h.start.Add(time.Duration(ms) * time.Millisecond) }
	// grant records a grant that was asked for and received at once, and returns its hold.
	grant := func(s backend.Share, ms int) int { token++; return h.Acquired(1, s, at(ms), at(ms), token) }
	release := func(hold, ms int) { h.Released(1, hold, at(ms), at(ms)) }
	permits := func(k int) backend.Share { return backend.Share{Weight: k, Capacity: 3} }
	writer, reader := backend.Share{}, backend.Reader
	for name, c := range map[string]struct {
		record func()
		ok     bool
	}{
		"readers":                  {func() { a, b := grant(reader, 1), grant(reader, 2); release(a, 3); release(b, 4) }, true},
		"a writer beside a reader": {func() { a := grant(reader, 1); b := grant(writer, 2); release(a, 3); release(b, 4) }, false},
		"a reader beside a writer": {func() { a := grant(writer, 1); b := grant(reader, 2); release(a, 3); release(b, 4) }, false},
		"a writer after readers": {func() {
			a, b := grant(reader, 1), grant(reader, 2)
			release(a, 3)
			release(b, 4)
			release(grant(writer, 5), 6)
		}, true},
		"permits":                             {func() { a, b := grant(permits(1), 1), grant(permits(2), 2); release(a, 3); release(b, 4) }, true},
		"too many permits":                    {func() { a, b := grant(permits(2), 1), grant(permits(2), 2); release(a, 3); release(b, 4) }, false},
		"permits after a release":             {func() { release(grant(permits(2), 1), 2); release(grant(permits(2), 3), 4) }, true},
		"a reader that was lost":              {func() { h.Lost(1, grant(reader, 1), at(2)); release(grant(writer, 3), 4) }, true},
		"a writer before the reader was lost": {func() { a := grant(reader, 1); release(grant(writer, 2), 3); h.Lost(1, a, at(4)) }, false},
		"a reader after the downgrade":        {func() { a := grant(writer, 1); h.Downgraded(1, a, at(2)); release(grant(reader, 3), 4); release(a, 5) }, true},
		"a reader before the downgrade": {func() {
			a := grant(writer, 1)
			b := grant(reader, 2)
			h.Downgraded(1, a, at(3))
			release(b, 4)
			release(a, 5)
		}, false},
		"a writer after the downgrade":       {func() { a := grant(writer, 1); h.Downgraded(1, a, at(2)); release(grant(writer, 3), 4); release(a, 5) }, false},
		"a downgrade that was not executed":  {func() { a := grant(writer, 1); h.Downgraded(1, a, at(2)); release(a, 3); release(grant(writer, 4), 5) }, true},
		"a release of nothing":               {func() { a := grant(reader, 1); release(a, 2); release(a, 3) }, false},
		"a reader's release beside a writer": {func() { a := grant(reader, 1); release(a, 2); grant(writer, 3); release(a, 4); grant(writer, 5) }, false},
		"a token that falls":                 {func() { a := grant(reader, 1); token = 0; b := grant(reader, 2); release(a, 3); release(b, 4) }, false},
	} {
		h, token = NewHistory(true), 0
		c.record()
		err := h.Check(time.Minute)
		if wrong := (*HistoryError)(nil); c.ok && err != nil || !c.ok && !errors.As(err, &wrong) {
			t.Errorf("%s: got %v, want that it is legal: %t", name, err, c.ok)
		}
	}
}

// TestModelOfManyWaiters has waiters that could be granted in many orders, but for their tokens.
func TestModelOfManyWaiters(t *testing.T) {
	h := NewHistory(true)
	r := rand.New(rand.NewPCG(1, 1))
	at := func(ms int) time.Time { return h.start.Add(time.Duration(ms) * time.Millisecond) }
	const waiters, grants = 80, 300
	for i := range grants { // up to four at a time
		granted := 10 * i
		hold := h.Acquired(i%waiters, backend.Share{Weight: 1 + r.IntN(2), Capacity: 8}, at(granted-r.IntN(10*waiters)), at(granted+5), uint64(1+i))
		h.Released(i%waiters, hold, at(granted+6+r.IntN(20)), at(granted+39))
	}
	if err := h.Check(time.Minute); err != nil {
		t.Error(err)
	}
}

// TestCut compares the verdict on the whole of a history with that on its parts.
func TestCut(t *testing.T) {
	verdict := func(ops []porcupine.Operation, length int) (legal bool, parts int) {
		state := lockState{}
		for _, part := range cut(ops, length) {
			parts++
			if porcupine.CheckOperationsTimeout(lockModel(true, state), inOrder(part.ops, state.token), time.Minute) != porcupine.Ok {
				return false, parts
			}
			state = part.after
		}
		return true, parts
	}
	var legal, illegal, pieces int
	for seed := range uint64(400) {
		ops := randomHistory(rand.New(rand.NewPCG(seed, 1)))
		whole, _ := verdict(ops, len(ops))
		cut, parts := verdict(ops, 5)
		if whole != cut {
			t.Fatalf("seed %d: the whole is legal: %v, in parts: %v", seed, whole, cut)
		}
		if whole {
			legal++
			pieces += parts
		} else {
			illegal++
		}
	}
	if legal < 50 || illegal < 50 || pieces < 3*legal {
		t.Errorf("%d legal histories in %d parts, %d illegal: want enough of each", legal, pieces, illegal)
	}
}

// randomHistory is that of a lock with readers, with two operations moved in half of the cases.
func randomHistory(r *rand.Rand) []porcupine.Operation {
	var steps []step
	now := int64(0)
	var ended int64 // when the readers have released
	readers := map[int]bool{}
	for hold := 1; hold <= 12; hold++ {
		token := uint64(hold)
		now += 10 * (1 + r.Int64N(5))
		if readers[hold] = r.IntN(2) == 0; !readers[hold] {
			now = max(now, ended)
		}
		steps = append(steps, step{opAcquire, hold, token, max(0, now-10*r.Int64N(30)), now + 10*r.Int64N(3)})
		now = steps[len(steps)-1].ret
		end := now + 10
		switch {
		case readers[hold]:
			end += 10 * r.Int64N(20)
			ended = max(ended, end)
		case r.IntN(3) == 0:
			steps = append(steps, step{opLower, hold, 0, end, never})
			end += 10 * (1 + r.Int64N(20))
			ended = max(ended, end)
		default:
			for range r.IntN(3) {
				now += 20
				steps = append(steps, step{opWrite, hold, token, now - 10, now})
			}
			now += 20
			end = now - 10
		}
		if r.IntN(3) == 0 {
			steps = append(steps, step{opEnd, hold, 0, end, never})
		} else {
			steps = append(steps, step{opRelease, hold, 0, end, end + 10*r.Int64N(20)})
		}
	}
	if r.IntN(2) == 0 {
		for range 2 {
			i := r.IntN(len(steps))
			by := 10 * (r.Int64N(41) - 20)
			steps[i].call += by
			if steps[i].ret != never {
				steps[i].ret += by
			}
		}
	}
	var ops []porcupine.Operation
	received := map[int]int64{}
	for _, s := range steps {
		if s.kind == opAcquire {
			received[s.hold] = s.ret
		}
		if first := received[s.hold]; s.kind != opAcquire && s.call < first { // a client uses no grant before it has received it
			s.call, s.ret = first, max(s.ret, first)
		}
		op := s.operation()
		if in := op.Input.(opInput); readers[s.hold] {
			in.share = backend.Reader
			op.Input = in
		}
		ops = append(ops, op)
	}
	return ops
}
