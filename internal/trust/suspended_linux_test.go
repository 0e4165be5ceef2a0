package trust

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSuspendedDoesNotCountTheTimeOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := suspended(time.Now())
		time.Sleep(time.Hour)
		if d := suspended(time.Now()) - before; d < -time.Second || d > time.Second {
			t.Errorf("the suspended time moved by %v", d)
		}
	})
	if clockTime(clockBoottime) <= 0 || clockTime(clockMonotonic) <= 0 {
		t.Error("a clock shows no time")
	}
}

// A thread that is preempted between two readings makes no suspension of the machine.
func TestSuspendedOfAPreemptedThread(t *testing.T) {
	for name, pauses := range map[string][]time.Duration{ // after each reading; then none
		"between the clocks":             {50 * time.Millisecond},
		"after both":                     {0, 50 * time.Millisecond},
		"in each of the first two turns": {50 * time.Millisecond, 0, 0, 0, 80 * time.Millisecond},
		"in all turns, once briefly": {
			time.Second, 0, 0, time.Second, 0, 0, 2 * time.Millisecond, 0, 0, time.Second, 0, 0, time.Second, 0, 0,
		},
	} {
		const asleep = time.Hour
		var now time.Duration
		got := ahead(func(clock uintptr) time.Duration {
			shown := now
			if clock == clockBoottime {
				shown += asleep
			}
			if len(pauses) > 0 {
				now, pauses = now+pauses[0], pauses[1:]
			}
			return shown
		})
		if got < asleep || got > asleep+2*time.Millisecond {
			t.Errorf("preempted %s: want %v, got %v", name, asleep, got)
		}
	}
}

// The suspended time is read again when the clocks have moved apart, in either direction, and only then.
func TestReadAgain(t *testing.T) {
	var c cache
	reads := 0
	read := func() time.Duration { reads++; return time.Duration(reads) * time.Hour }
	for i, apart := range []time.Duration{0, 0, time.Millisecond, time.Hour, time.Hour, -time.Hour} {
		want := []time.Duration{1, 1, 1, 2, 2, 3}[i] * time.Hour
		if got := c.at(apart, read); got != want {
			t.Errorf("reading %d, the clocks %v apart: want %v, got %v", i, apart, want, got)
		}
	}
}

func BenchmarkSuspended(b *testing.B) {
	for b.Loop() {
		_ = suspended(time.Now())
	}
}
