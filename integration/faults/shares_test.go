package faults

import (
	"fmt"
	"math"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/faults/workload"
)

func TestExclusionOfShares(t *testing.T) {
	t.Parallel()
	var number int
	grant := func(s lock.Share, from, to int64, slots ...int) []workload.Op {
		number++
		return []workload.Op{
			{Kind: workload.Acquired, Share: s, Hold: number, Ret: from, Slots: slots},
			{Kind: workload.Released, Share: s, Hold: number, Call: to},
		}
	}
	lowered := func(from, at, to int64) []workload.Op {
		return append(grant(lock.Share{}, from, to), workload.Op{Kind: workload.Downgraded, Hold: number, Call: at})
	}
	permits := func(k int) lock.Share { return lock.Share{Weight: k, Capacity: 3} }
	exclusive := lock.Share{}
	for name, c := range map[string]struct {
		ops  [][]workload.Op
		want int // violations
	}{
		"readers":                   {[][]workload.Op{grant(backend.Reader, 1, 9), grant(backend.Reader, 2, 8)}, 0},
		"a writer beside a reader":  {[][]workload.Op{grant(backend.Reader, 1, 5), grant(exclusive, 4, 9)}, 1},
		"a writer after a reader":   {[][]workload.Op{grant(backend.Reader, 1, 4), grant(exclusive, 4, 9)}, 0},
		"a writer beside two":       {[][]workload.Op{grant(backend.Reader, 1, 5), grant(backend.Reader, 1, 3), grant(exclusive, 4, 9)}, 1},
		"two writers":               {[][]workload.Op{grant(exclusive, 1, math.MaxInt64), grant(exclusive, 4, 9)}, 1},
		"permits":                   {[][]workload.Op{grant(permits(1), 1, 9, 0), grant(permits(2), 2, 8, 1, 2)}, 0},
		"too many permits":          {[][]workload.Op{grant(permits(2), 1, 9, 0, 1), grant(permits(2), 2, 8, 2, 3)}, 1},
		"a slot twice":              {[][]workload.Op{grant(permits(1), 1, 9, 0), grant(permits(1), 2, 8, 0)}, 1},
		"a writer beside permits":   {[][]workload.Op{grant(permits(1), 1, 9, 0), grant(exclusive, 2, 8)}, 1},
		"a reader after downgrade":  {[][]workload.Op{lowered(1, 3, 9), grant(backend.Reader, 4, 8)}, 0},
		"a reader before downgrade": {[][]workload.Op{lowered(1, 5, 9), grant(backend.Reader, 4, 8)}, 1},
		"a writer after downgrade":  {[][]workload.Op{lowered(1, 3, 9), grant(exclusive, 4, 8)}, 1},
	} {
		var ops []workload.Op
		for _, o := range c.ops {
			ops = append(ops, o...)
		}
		h := &history{ops: ops, keys: []string{"x"}}
		var got []string
		h.checkExclusion(grantsOf(ops), func(r Rule, format string, args ...any) {
			got = append(got, string(r)+": "+fmt.Sprintf(format, args...))
		})
		if len(got) != c.want {
			t.Errorf("%s: %d violations, want %d: %q", name, len(got), c.want, got)
		}
	}
}
