// Package schedule runs a job at regular times on one of many nodes: on the holder of
// a lock.Mutex.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/work"
)

// Option configures Every and Cron.
type Option func(*config)

type config struct {
	campaign []elect.Option
	times    Schedule
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
func WithOffset(d time.Duration) Option {
	return func(c *config) { c.offset = max(d, -math.MaxInt64) } // so that there is -offset
}

// WithOnRun sets a function that is called after each run of the job in this process, in the
// goroutine of Every or Cron.
func WithOnRun(f func(Run)) Option { return func(c *config) { c.onRun = f } }

// WithCampaign sets options of the elect.Campaign by which Every or Cron gets m.
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
	if interval <= 0 {
		return &lock.Error{Op: "every", Name: m.Name(),
			Err: fmt.Errorf("%w interval %v: want a positive duration", lock.ErrInvalid, interval)}
	}
	return newConfig(every(interval), opts).run(ctx, "every", m, job)
}

// Cron is Every for the times of a schedule, such as that of a cron expression, see Schedule.
func Cron(ctx context.Context, m lock.Mutex, s Schedule, job func(ctx context.Context) error, opts ...Option) error {
	if err := validSchedule(s, time.Now()); err != nil {
		return &lock.Error{Op: "cron", Name: m.Name(), Err: err}
	}
	return newConfig(s, opts).run(ctx, "cron", m, job)
}

func newConfig(s Schedule, opts []Option) *config {
	c := &config{times: s, onRun: func(Run) {}}
	for _, o := range opts {
		o(c)
	}
	return c
}

// run runs job at the due times while this node holds m.
func (c *config) run(ctx context.Context, op string, m lock.Mutex, job func(ctx context.Context) error) error {
	var last Run    // of this node
	var ended error // why the context of its last term ended
	held := &leaseKeeper{Mutex: m}
	err := elect.Campaign(ctx, held, func(ctx context.Context) error {
		for {
			tick, ok := c.awaitTick(ctx, last)
			late := time.Now().Round(0).Sub(tick)
			if !ok || late > maxLate && !held.verify(ctx) {
				ended = retry.ContextError(ctx)
				return nil
			}
			last = Run{Tick: tick, Start: time.Now()}
			if !c.after(tick).After(last.Start.Round(0)) {
				continue // the process was stopped until the next due time
			}
			work.RestartMinHold(ctx)
			last.Err = job(ctx)
			last.Took = time.Since(last.Start)
			c.onRun(last)
		}
	}, c.campaign...)
	if err == nil {
		err = ended
	} else if e := (*lock.Error)(nil); errors.As(err, &e) && e.Op == "campaign" {
		err = e.Err
	} else {
		return err
	}
	return &lock.Error{Op: op, Name: m.Name(), Err: err}
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
