// Package schedule runs a job at regular times on one of many nodes: on the holder of
// a lock.Mutex.
package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/internal/retry"
)

// Option configures Every.
type Option func(*config)

type config struct {
	campaign []elect.Option
	interval time.Duration
	offset   time.Duration
	onRun    func(Run)
}

// Run describes one run of a job.
type Run struct {
	Tick  time.Time // when the job was due
	Start time.Time // when the job started
	Took  time.Duration
	Err   error // the job's error
}

// WithOffset moves the times at which a job is due by d: with an interval of 24 h and an
// offset of 3 h the job is due at 03:00 UTC.
func WithOffset(d time.Duration) Option { return func(c *config) { c.offset = d } }

// WithOnRun makes Every call f after each run of the job in this process, in the
// goroutine of Every.
func WithOnRun(f func(Run)) Option { return func(c *config) { c.onRun = f } }

// WithCampaign sets options of the elect.Campaign by which Every gets m.
func WithCampaign(opts ...elect.Option) Option {
	return func(c *config) { c.campaign = append(c.campaign, opts...) }
}

// Every runs job once in each interval, on one of the nodes that call Every with the
// same m, until ctx ends. The job is due at the multiples of interval since the year 1
// UTC, by the wall clock of the node: with an interval of 1 h, at each full hour.
//
// The node that holds m runs the job until it stops or loses m; then another node takes
// over, as with elect.Campaign. Runs never overlap. A due time that passes between two
// holders, or during a run longer than interval, is skipped. The context of a run ends
// with ctx, and with the cause lock.ErrLost before another node can hold m; job must
// return soon after that. lock.FromContext returns its lease.
//
// A clock that is set back by less than interval repeats no run. After a greater step the
// next run is due by the new time. A run that is late by more than a second starts when the
// backend has confirmed that m is still held.
//
// A node whose clock is late could repeat the last run of a node that stops. Create m
// with a lock.WithMinHold and a TTL longer than the difference between clocks: Every
// counts the minimum hold from the start of the last run, and where the backend has
// TTLs, a crashed node keeps m for at least about two thirds of the TTL.
//
// An error of job does not end Every; see WithOnRun. Every returns an error that matches
// ctx.Err(), or the reason why m can never be locked. If job panics, Every releases m
// and the panic continues.
func Every(ctx context.Context, m lock.Mutex, interval time.Duration, job func(ctx context.Context) error, opts ...Option) error {
	c := &config{interval: interval, onRun: func(Run) {}}
	for _, o := range opts {
		o(c)
	}
	if interval <= 0 {
		return &lock.Error{Op: "every", Name: m.Name(),
			Err: fmt.Errorf("%w interval %v: want a positive duration", lock.ErrInvalid, interval)}
	}
	var last Run         // of this node
	c.offset %= interval // the same due times
	held := &leaseKeeper{Mutex: m}
	return elect.Campaign(ctx, held, func(ctx context.Context) error {
		for {
			tick, ok := c.awaitTick(ctx, last)
			if !ok {
				return nil
			}
			if late := time.Now().Round(0).Sub(tick); late > maxLate && !held.verify(ctx) {
				return nil
			}
			last = Run{Tick: tick, Start: time.Now()}
			if last.Start.Round(0).Sub(tick) >= interval {
				continue // the process was stopped until the next due time
			}
			held.lease.RestartMinHold()
			last.Err = job(ctx)
			last.Took = time.Since(last.Start)
			c.onRun(last)
		}
	}, c.campaign...)
}

// maxLate is how late a run may be without a check of the lease: the machine of a later one
// may have been suspended.
const maxLate = time.Second

// leaseKeeper keeps the lease of the current term. Campaign calls Lock and the function
// of the term in one goroutine.
type leaseKeeper struct {
	lock.Mutex
	lease *lock.Lease
}

func (k *leaseKeeper) Lock(ctx context.Context) (l *lock.Lease, err error) {
	k.lease, err = k.Mutex.Lock(ctx)
	return k.lease, err
}

// verify waits until the backend confirms the lease. It returns false if ctx ends first, as
// it does if the lease is lost.
func (k *leaseKeeper) verify(ctx context.Context) bool {
	pause := &retry.Backoff{Next: 100 * time.Millisecond, Max: 5 * time.Second}
	for k.lease.Check(ctx) != nil {
		if !pause.Wait(ctx) {
			return false
		}
	}
	return ctx.Err() == nil
}

// next returns the first due time after now, and after that of the last run: a clock that
// was set back a little repeats no run. If the last run was due an interval or more ahead,
// the clock was wrong: the next run is then at least half an interval after its start, by
// the monotonic clock.
func (c *config) next(now time.Time, last Run) time.Time {
	after := now.Round(0) // nodes share the wall clock, not the monotonic one
	switch ahead := last.Tick.Sub(after); {
	case ahead >= c.interval:
		after = after.Add(max(0, c.interval/2-now.Sub(last.Start)))
	case ahead > 0:
		after = last.Tick
	}
	return after.Add(-c.offset).Truncate(c.interval).Add(c.interval).Add(c.offset)
}

// awaitTick sleeps until the wall clock shows the next due time, and returns false if ctx
// ends first. The clock may be set meanwhile, so it is read at least once a minute.
func (c *config) awaitTick(ctx context.Context, last Run) (tick time.Time, ok bool) {
	tick = c.next(time.Now(), last)
	for {
		left := tick.Sub(time.Now().Round(0))
		switch {
		case left <= 0:
			return tick, ctx.Err() == nil
		case left/2 > c.interval: // the clock was set back
			tick = c.next(time.Now(), last)
			continue
		}
		t := time.NewTimer(min(left, time.Minute))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return tick, false
		}
	}
}
