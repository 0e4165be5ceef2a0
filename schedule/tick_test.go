package schedule

import (
	"testing"
	"time"
)

func nextTick(now, last time.Time, interval, offset time.Duration) time.Time {
	return (&config{times: every(interval), offset: offset}).next(now, Run{Tick: last, Start: now.Add(-time.Minute)})
}

// The clock was ahead at the last run and has been corrected since.
func TestTickAfterAClockThatWasAhead(t *testing.T) {
	now := time.Now()
	for _, ahead := range []time.Duration{time.Minute, time.Hour, 10 * 365 * 24 * time.Hour} {
		for _, since := range []time.Duration{0, 20 * time.Second, time.Hour} {
			c := &config{times: every(time.Minute)}
			next := c.next(now, Run{Tick: now.Add(ahead).Round(0).Truncate(time.Minute), Start: now.Add(-since)})
			if wait := next.Sub(now.Round(0)); wait > 2*time.Minute || wait+since < 30*time.Second {
				t.Errorf("a run that was due %v ahead began %v ago: the next is in %v", ahead, since, wait)
			}
		}
	}
}

func TestEveryTicks(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.DateTime, "2026-01-02 "+s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct{ now, last, want string }{
		{"10:00:01", "", "10:30:00"},
		{"10:00:00", "", "10:30:00"}, // now is not after now
		{"10:29:59", "10:00:00", "10:30:00"},
		{"09:59:50", "10:00:00", "10:30:00"}, // a clock that was set back repeats no run
		{"12:10:00", "10:00:00", "12:30:00"}, // missed due times are skipped
	} {
		var last time.Time
		if c.last != "" {
			last = at(c.last)
		}
		if got := nextTick(at(c.now), last, 30*time.Minute, 0); !got.Equal(at(c.want)) {
			t.Errorf("now %s, last %s: %s, want %s", c.now, c.last, got.Format(time.TimeOnly), c.want)
		}
	}
	if got := nextTick(at("03:30:00"), time.Time{}, 24*time.Hour, 3*time.Hour); got.Format(time.TimeOnly) != "03:00:00" || !got.After(at("03:30:00")) {
		t.Errorf("each day at three: %v", got)
	}
	if got := nextTick(at("10:00:00"), time.Time{}, time.Hour, -5*time.Minute); got.Format(time.TimeOnly) != "10:55:00" {
		t.Errorf("five to: %v", got)
	}
}
