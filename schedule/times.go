package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend/call"
)

// Schedule is a set of due times that is the same on every node. Next returns the first one after
// t, zero if there is none. Cron passes times in UTC.
//
// The Schedule of a cron expression in a time zone is that of github.com/robfig/cron/v3:
//
//	s, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 3 * * *")
type Schedule interface {
	Next(t time.Time) time.Time
}

// every is the Schedule of Every: the multiples of an interval since the year 1 UTC.
type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// validSchedule returns an error for a Schedule whose next time depends on when it is asked.
func validSchedule(s Schedule, now time.Time) error {
	next := s.Next(now.UTC())
	switch {
	case next.IsZero():
		return fmt.Errorf("%w schedule: want one with a time that is to come", lock.ErrInvalid)
	case !next.After(now) || !s.Next(next.Add(-1)).Equal(next):
		return fmt.Errorf("%w schedule, next %v: want times that do not depend on when they are asked for; Every takes an interval",
			lock.ErrInvalid, next)
	}
	return nil
}

// after returns the first due time after t. If there is none it is a century later.
func (c *config) after(t time.Time) time.Time {
	next := c.times.Next(t.UTC().Add(-c.offset))
	if next.IsZero() {
		return t.AddDate(100, 0, 0)
	}
	return next.Add(c.offset).In(t.Location())
}

// next returns the first due time after now, and after that of the last run: a clock that
// was set back a little repeats no run. If the next run but one was due before the last, the
// clock was wrong: the next run is then at least half of the time between two runs after the
// start of the last, by the monotonic clock.
func (c *config) next(now time.Time, last Run) time.Time {
	after := now.Round(0) // nodes share the wall clock, not the monotonic one
	if ahead := last.Tick.Sub(after); ahead > 0 {
		if gap := c.after(last.Tick).Sub(last.Tick); ahead < gap {
			after = last.Tick
		} else {
			after = after.Add(max(0, gap/2-now.Sub(last.Start)))
		}
	}
	return c.after(after)
}

// awaitTick sleeps until the wall clock shows the next due time, and returns false if ctx
// ends first. The clock may be set meanwhile, so it is read at least once a minute.
func (c *config) awaitTick(ctx context.Context, last Run) (tick time.Time, ok bool) {
	for {
		now := time.Now()
		tick = c.next(now, last)
		most := max(tick.Sub(now.Round(0)), c.after(tick).Sub(tick))
		for {
			left := tick.Sub(time.Now().Round(0))
			if left <= 0 {
				return tick, ctx.Err() == nil
			}
			if left/2 > most { // the clock was set back
				break
			}
			if !call.Sleep(ctx, min(left, time.Minute)) {
				return tick, false
			}
		}
	}
}
