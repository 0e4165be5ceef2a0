package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/faults/workload"
)

// A waiter may be passed over only if it was stopped while it waited.
func TestOrderAroundAStall(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	waiter := &grant{Op: workload.Op{Worker: 1, Token: 2, Call: 10 * s, Waited: 11 * s, Ret: 14 * s}}
	other := &grant{Op: workload.Op{Worker: 2, Token: 1, Call: 12 * s, Waited: 12 * s, Ret: 13 * s}}
	for _, tt := range []struct {
		name  string
		stall []stall
		want  int
	}{
		{"none", nil, 1},
		{"while it waits", []stall{{11*s + s/2, 12*s + s/2}}, 0},
		{"before it waits", []stall{{10*s + s/2, 11*s - s/2}}, 0},
		{"just before it came", []stall{{7 * s, 9 * s}}, 0},
		{"long before it came", []stall{{5 * s, 7 * s}}, 1},
		{"after the other was served", []stall{{13*s + s/2, 15 * s}}, 1},
	} {
		h := &history{keys: []string{"x"}, settled: 9 * s, stalls: tt.stall, settle: 2 * time.Second}
		got := 0
		h.checkOrder([]*grant{other, waiter}, func(r Rule, text string, _ ...any) {
			got++
			if r != Order {
				t.Errorf("%s: %s, %s", tt.name, r, text)
			}
		})
		if got != tt.want {
			t.Errorf("a stall, %s: %d violations, want %d", tt.name, got, tt.want)
		}
	}
}

func TestSlowReleases(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	ops := []workload.Op{
		{Kind: workload.Released, Call: 10 * ms, Ret: 20 * ms},
		{Kind: workload.Acquired, Call: 20 * ms, Ret: 90 * ms},
		{Kind: workload.Released, Call: 30 * ms, Ret: 41 * ms},
	}
	if got, want := slowReleases(ops, 10*time.Millisecond), []stall{{30 * ms, 41 * ms}}; !slices.Equal(got, want) {
		t.Errorf("want %v, got %v", want, got)
	}
}

func TestLookForStalls(t *testing.T) {
	t.Parallel()
	from := workload.Monotonic(time.Now())
	look := lookForStalls(0) // any timer is late by more than that
	time.Sleep(30 * time.Millisecond)
	all := look()
	to := workload.Monotonic(time.Now())
	if len(all) == 0 {
		t.Error("no timer was late")
	}
	for _, s := range all {
		if s.from < from || s.to < s.from || to < s.to {
			t.Errorf("from %d to %d, looked from %d to %d", s.from, s.to, from, to)
		}
		from = s.to
	}
	look = lookForStalls(time.Hour)
	if all := look(); len(all) != 0 {
		t.Errorf("%d timers were an hour late", len(all))
	}
}
