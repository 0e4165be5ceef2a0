package trust

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSuspendedDoesNotCountTheTimeOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := suspended()
		time.Sleep(time.Hour)
		if d := suspended() - before; d < -time.Second || d > time.Second {
			t.Errorf("the suspended time moved by %v", d)
		}
	})
	if clockTime(clockBoottime) <= 0 || clockTime(clockMonotonic) <= 0 {
		t.Error("a clock shows no time")
	}
}

func BenchmarkSuspended(b *testing.B) {
	for b.Loop() {
		_ = suspended()
	}
}
