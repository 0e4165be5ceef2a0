package lockcmd

import (
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// TestGuard asks a guard at chosen instants what to do with the command. The lease has 10 s, so the lead is 100 ms.
func TestGuard(t *testing.T) {
	t.Parallel()
	t0 := time.Now()
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	type step struct {
		now, expires float64 // seconds; expires < 0: the lease does not expire
		lost         bool
		want         action
		again        float64 // < 0: never
	}
	for name, c := range map[string]struct {
		grace time.Duration
		steps []step
	}{
		"renewed in time": {2 * time.Second, []step{
			{0, 10, false, actNone, 7.9}, {7.9, 13, false, actNone, 10.9},
		}},
		"not renewed": {2 * time.Second, []step{
			{0, 10, false, actNone, 7.9}, {7.9, 10, false, actTerm, 9.9}, {8, 10, false, actNone, 9.9},
			{9.9, 10, false, actKill, -1}, {10, 10, true, actNone, -1},
		}},
		"renewed too late": {2 * time.Second, []step{ // TERM was sent
			{8, 10, false, actTerm, 9.9}, {8.5, 18, false, actNone, 9.9}, {9.9, 18, false, actKill, -1},
		}},
		"broken": {2 * time.Second, []step{
			{3, 10, true, actTerm, 5}, {5, 10, true, actKill, -1},
		}},
		"broken near the end": {5 * time.Second, []step{
			{4, 10, true, actTerm, 9}, {9, 10, true, actKill, -1},
		}},
		"broken past the time for TERM": {5 * time.Second, []step{
			{6, 10, true, actTerm, 9.9}, {9.9, 10, true, actKill, -1},
		}},
		"stopped past the end": {2 * time.Second, []step{
			{30, 10, true, actKill, -1}, {31, 10, true, actNone, -1},
		}},
		"no grace": {0, []step{
			{0, 10, false, actNone, 9.9}, {9.9, 10, false, actKill, -1},
		}},
		"does not expire": {2 * time.Second, []step{
			{0, -1, false, actNone, -1}, {50, -1, true, actTerm, 52}, {52, -1, true, actKill, -1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(10*time.Second, c.grace)
			for i, s := range c.steps {
				var expires, again time.Time
				if s.expires >= 0 {
					expires = at(s.expires)
				}
				if s.again >= 0 {
					again = at(s.again)
				}
				var lost error
				if s.lost {
					lost = lock.ErrLost
				}
				act, next := g.check(at(s.now), expires, lost)
				if act != s.want || !next.Equal(again) {
					t.Fatalf("step %d: action %d, again after %v; want %d, %v", i, act, next.Sub(t0), s.want, again.Sub(t0))
				}
			}
		})
	}
}

// TestDefaultGraceLeavesTimeToRenew: with the default grace the command is ended only after the renewal that is due at a
// third of the lease has failed, and the next one too.
func TestDefaultGraceLeavesTimeToRenew(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{50 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		g := newGuard(ttl, defaultGrace(ttl))
		margin := min(max(ttl/20, 10*time.Millisecond), 500*time.Millisecond) + ttl/1000
		if left := ttl - margin - g.lead - g.grace; left < ttl/3+ttl/12 {
			t.Errorf("ttl %v: TERM after %v", ttl, left)
		}
		if g.grace > maxGrace(ttl) {
			t.Errorf("ttl %v: grace %v is refused", ttl, g.grace)
		}
	}
}
