package faults

import (
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/faults/workload"
)

func TestStarved(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	reader := func(call, from, to int64) *grant {
		return &grant{Op: workload.Op{Kind: workload.Acquired, Share: backend.Reader, Call: call * s, Ret: from * s}, trusted: to * s}
	}
	waits := func(k workload.Kind, from, to int64) workload.Op {
		return workload.Op{Kind: k, Call: from * s, Waited: from * s, Ret: to * s}
	}
	for name, c := range map[string]struct {
		op     workload.Op
		grants []*grant
		stalls []stall
		want   int // violations
	}{
		"for no other":           {waits(workload.Acquired, 1, 4), nil, nil, 1},
		"for a short time":       {waits(workload.Acquired, 1, 3), nil, nil, 0},
		"for one before it":      {waits(workload.Acquired, 1, 9), []*grant{reader(0, 0, 8)}, nil, 0},
		"for two before it":      {waits(workload.Acquired, 2, 9), []*grant{reader(0, 0, 4), reader(1, 5, 8)}, nil, 0},
		"with time between":      {waits(workload.Acquired, 2, 9), []*grant{reader(0, 0, 3), reader(1, 6, 9)}, nil, 1},
		"for one after it":       {waits(workload.Acquired, 1, 9), []*grant{reader(0, 0, 3), reader(2, 3, 9)}, nil, 1},
		"until it was cancelled": {waits(workload.Refused, 1, 9), []*grant{reader(2, 2, 9)}, nil, 1},
		"during a stall":         {waits(workload.Acquired, 1, 9), nil, []stall{{4 * s, 5 * s}}, 0},
		"as a reader":            {reader(1, 9, 10).Op, nil, nil, 0},
		"without notice":         {workload.Op{Kind: workload.Acquired, Call: 1 * s, Ret: 9 * s}, nil, nil, 0},
	} {
		h := &history{keys: []string{"x"}, stalls: c.stalls, allowance: func(int64, int64) time.Duration { return 2 * time.Second }}
		got := 0
		h.checkStarved([]workload.Op{c.op}, c.grants, func(r Rule, text string, _ ...any) {
			got++
			if r != Starved {
				t.Errorf("%s: %s, %s", name, r, text)
			}
		})
		if got != c.want {
			t.Errorf("%s: %d violations, want %d", name, got, c.want)
		}
	}
}

// A kill lengthens the allowance of those who wait at its time, or soon after.
func TestPatience(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	r := &run{ttl: 10 * time.Second, kills: []int64{100 * s}}
	for name, c := range map[string]struct {
		from, to int64
		want     time.Duration
	}{
		"before":     {90, 99, 10 * time.Second},
		"during":     {90, 110, 23 * time.Second},
		"soon after": {119, 130, 23 * time.Second},
		"after":      {121, 130, 10 * time.Second},
	} {
		if got := r.allowance(c.from*s, c.to*s); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
