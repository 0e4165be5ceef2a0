package lock

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
)

// EveryOption configures Every.
type EveryOption interface{ applyEvery(*everyConfig) }

type everyConfig struct {
	campaign campaignConfig
	interval time.Duration
	offset   time.Duration
	onRun    func(Run)
}

type everyOption func(*everyConfig)

func (o everyOption) applyEvery(c *everyConfig) { o(c) }

// Run is what WithOnRun is told of one run of a job.
type Run struct {
	Tick  time.Time // the instant for which the job was due
	Start time.Time // when it began
	Took  time.Duration
	Err   error // what the job returned
}

// WithOffset shifts the instants at which a job is due by d: with an interval of 24 h,
// 3 h is three o'clock UTC.
func WithOffset(d time.Duration) EveryOption {
	return everyOption(func(c *everyConfig) { c.offset = d })
}

// WithOnRun has f called after each run of the job in this process, in Every's own
// goroutine.
func WithOnRun(f func(Run)) EveryOption {
	return everyOption(func(c *everyConfig) { c.onRun = f })
}

// Every runs job each interval on one node of all that call it with the same m, for
// as long as ctx lasts. The job is due at the whole multiples of the interval since
// the year 1 UTC (each hour on the hour), by the clock of the node that runs it.
//
// The node that holds m runs every job until it stops or loses m, as the leader of
// a Campaign; another then takes over. An instant that passes meanwhile, or while
// a run takes longer than the interval, is skipped: runs are never made up for, and
// never overlap, on one node or two. A run's context ends with the cause ErrLost when
// m is lost, before another node can hold it, and when ctx ends; job must return soon
// after that.
//
// When a node stops soon after a run, m must not pass at once to a node whose clock is
// late and for which the same run is still due. So make m with WithMinHold, of more
// than the clocks differ: for Every it counts from the start of the last run. A node
// that dies keeps m for what is left of its TTL, at least about two thirds of it where
// the backend has TTLs: choose a TTL of more than the clocks differ, too.
//
// A job that returns an error runs again at the next instant all the same; WithOnRun
// is told. Every returns an error that matches ctx.Err() when ctx ends, or why m can
// never be locked; a job's panic frees m and goes on.
func Every(ctx context.Context, m Mutex, interval time.Duration, job func(ctx context.Context) error, opts ...EveryOption) error {
	c := &everyConfig{campaign: newCampaignConfig(), interval: interval, onRun: func(Run) {}}
	for _, o := range opts {
		o.applyEvery(c)
	}
	if interval <= 0 {
		return jointError("every", m.Name(), backend.Invalid("interval", interval, "a positive duration"))
	}
	var last time.Time // the instant of the last run of this node
	return c.campaign.run(ctx, m, func(ctx context.Context, l *Lease) error {
		for {
			tick := c.next(time.Now(), last)
			if !sleepUntil(ctx, tick) {
				return nil
			}
			last = tick
			start := time.Now()
			if start.Round(0).Sub(tick) >= interval {
				continue // this process, or its machine, was stopped for that long
			}
			l.keepFrom(start)
			err := job(ctx)
			c.onRun(Run{Tick: tick, Start: start, Took: time.Since(start), Err: err})
		}
	})
}

// next is the first instant after now and after the last run: a clock that was set
// back brings no run again.
func (c *everyConfig) next(now, last time.Time) time.Time {
	after := now.Round(0) // the wall clock, which other nodes have in common
	if last.After(after) {
		after = last
	}
	return after.Add(-c.offset).Truncate(c.interval).Add(c.interval + c.offset)
}

// sleepUntil waits for an instant of the wall clock, which may be set meanwhile. It
// reports false if ctx ended first.
func sleepUntil(ctx context.Context, tick time.Time) bool {
	const look = time.Minute
	for {
		left := tick.Sub(time.Now().Round(0))
		if left <= 0 {
			return ctx.Err() == nil
		}
		t := time.NewTimer(min(left, look))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}
