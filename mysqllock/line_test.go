package mysqllock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// lineOf returns a line whose attempts have these places in the queue. Their watcher is not started.
func lineOf(t *testing.T, places ...int64) (*Backend, []*attempt) {
	b := &Backend{lines: map[string]*line{}, waiting: map[string]*attempt{}, life: t.Context()}
	var all []*attempt
	for _, p := range places {
		a := b.newAttempt(backend.Request{Key: "k", Owner: ownerOf(int(p)), TTL: time.Duration(p) * time.Minute})
		a.line.watching = true
		a.enqueue(rowState{place: p})
		all = append(all, a)
	}
	return b, all
}

// received returns what was sent to an attempt, or nil.
func received(a *attempt) *news {
	select {
	case n := <-a.news:
		return &n
	default:
		return nil
	}
}

// TestDispatch checks which attempt learns what from a row, and whom the watcher waits for next.
func TestDispatch(t *testing.T) {
	now := time.Now().Add(time.Second)
	for name, c := range map[string]struct {
		s       rowState
		granted int64 // place of the attempt that receives its grant
		again   int64 // and of that which has to ask again
		first   int64
	}{
		"another holds":                    {s: rowState{owner: ownerOf(1), place: 3, expires: 1}, first: 3},
		"the first is granted":             {s: rowState{owner: ownerOf(3), expires: 1}, granted: 3, first: 5},
		"a later one is granted":           {s: rowState{owner: ownerOf(9), place: 3, expires: 1}, granted: 9, first: 3},
		"the grant of the first has ended": {s: rowState{owner: ownerOf(3)}, again: 3, first: 5},
		"the first is not in the queue":    {s: rowState{owner: ownerOf(1), expires: 1}, again: 3, first: 5},
	} {
		t.Run(name, func(t *testing.T) {
			_, all := lineOf(t, 5, 3, 9) // in the order of their replies
			c.s.sent = now
			first := all[0].line.dispatch(all[1], c.s)
			if first == nil || first.place != c.first {
				t.Fatalf("want the watcher to wait for place %d, got %+v", c.first, first)
			}
			for _, a := range all {
				n := received(a)
				if want := a.place == c.granted || a.place == c.again; want != (n != nil) {
					t.Errorf("place %d: received news: %v, want %v", a.place, n != nil, want)
				} else if want && (n.granted != nil) != (a.place == c.granted) {
					t.Errorf("place %d: granted: %v", a.place, n.granted != nil)
				}
			}
		})
	}
}

// A row that was read before an attempt entered the queue says nothing about the attempt.
func TestDispatchOfOldRow(t *testing.T) {
	_, all := lineOf(t, 3)
	if first := all[0].line.dispatch(all[0], rowState{sent: time.Now().Add(-time.Second)}); first != all[0] || received(all[0]) != nil {
		t.Error("the attempt has to ask again")
	}
}

// Without waiters the watcher ends, and the line of the last attempt goes.
func TestLineEnds(t *testing.T) {
	b, all := lineOf(t, 3, 5)
	all[0].done()
	if len(b.waiting) != 1 || all[0].line.waiters[0] != all[1] {
		t.Errorf("after the first has left: %d are waiting", len(b.waiting))
	}
	all[1].done()
	if len(b.lines) != 1 {
		t.Error("the line of a watcher is gone")
	}
	if first := all[1].line.dispatch(all[1], rowState{}); first != nil || all[1].line.watching || len(b.lines) != 0 {
		t.Errorf("want the watcher to end, got %v, %d lines", first, len(b.lines))
	}
}

// In an outage an attempt fails after its TTL, and at once if the outage cannot end.
func TestFailed(t *testing.T) {
	for err, want := range map[error][]int64{
		errors.New("no answer"): {1, 2},
		backend.ErrClosed:       {1, 2, 3},
	} {
		_, all := lineOf(t, 1, 2, 3)
		all[0].line.failed(err, time.Now().Add(-150*time.Second))
		var got []int64
		for _, a := range all {
			if n := received(a); n != nil && errors.Is(n.err, err) {
				got = append(got, a.place)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: attempts %v failed, want %v", err, got, want)
		}
	}
}
