package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// Each duration is refused by the name of its flag, or the command runs under the lock.
func TestRunExtremeDurations(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	for _, f := range []struct {
		flag, url string
		refused   []time.Duration
		accepted  []time.Duration
	}{
		{"ttl", cmdtest.FileURL(t), []time.Duration{math.MinInt64, -1, 0, 1, century, math.MaxInt64 - time.Hour, math.MaxInt64}, []time.Duration{time.Hour}},
		{"wait", cmdtest.FileURL(t), []time.Duration{math.MinInt64, -1}, []time.Duration{0, time.Hour, century, math.MaxInt64}},
		{"min-hold", cmdtest.FileURL(t), []time.Duration{math.MinInt64, -1}, []time.Duration{0, 1}},
		{"grace", cmdtest.FileURL(t), []time.Duration{math.MinInt64, -1, time.Hour, century, math.MaxInt64}, []time.Duration{0, 1}},
		{"wait-for-service", cmdtest.FileURL(t), []time.Duration{math.MinInt64, -1, 0}, []time.Duration{time.Hour, century, math.MaxInt64}},
	} {
		run := func(d time.Duration) (int, string) {
			code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", f.url, "--"+f.flag+"="+d.String(), "x", "--", "true")
			return code, stderr
		}
		for _, d := range f.refused {
			code, stderr := run(d)
			if code != lockcmd.ExitUsage || !strings.Contains(stderr, f.flag) || !strings.Contains(stderr, d.String()) {
				t.Errorf("--%s %v: want code %d and an error that names both, got code %d, %q", f.flag, d, lockcmd.ExitUsage, code, stderr)
			}
		}
		for _, d := range f.accepted {
			if code, stderr := run(d); code != 0 {
				t.Errorf("--%s %v: want the command run, got code %d, %q", f.flag, d, code, stderr)
			}
		}
	}
}

// A process keeps a lock of a file for the minimum hold.
func TestRunLongMinHold(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Hour, math.MaxInt64} {
		url := cmdtest.FileURL(t)
		r := cmdtest.Begin(t, nil, "run", "--url", url, "--min-hold", d.String(), "x", "--", "echo", "done")
		r.Stdout.Contains("done")
		code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", url, "--wait", "2s", "x", "--", "true")
		if code != lockcmd.ExitNotAcquired {
			t.Errorf("within a minimum hold of %v: got code %d, %q", d, code, stderr)
		}
	}
}
