package conformance

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// extremes are durations at which sums overflow or become zero.
var extremes = []time.Duration{
	math.MinInt64, -1, 0, 1, time.Hour, 100 * 365 * 24 * time.Hour, math.MaxInt64 - time.Hour, math.MaxInt64,
}

// extremeDurations wants of each duration that a program can set an error that names it, or a lock that excludes.
func extremeDurations(t *T) {
	x := &extreme{T: t, c: t.client(), other: t.client(), w: t.waiter()}
	for _, d := range append([]time.Duration{x.mostTTL()}, extremes...) {
		x.ttl(d)
		x.extend(d)
		x.wait(d)
		x.minHold(d)
	}
}

type extreme struct {
	*T
	c, other *lock.Client
	w        *waiter
}

// judge reports whether a duration was accepted, which it must be exactly if valid is true.
func (x *extreme) judge(field string, d time.Duration, valid bool, err error) bool {
	switch {
	case valid && err != nil:
		x.fatalf("%s %v: want it accepted, got %v", field, d, err)
	case !valid && (!errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), field+" "+d.String())):
		x.fatalf("%s %v: want ErrInvalid that names both, got %v", field, d, err)
	}
	return valid
}

func (x *extreme) mostTTL() time.Duration { return cmp.Or(x.caps.MaxTTL, backend.MaxTTL) }

func (x *extreme) accepts(ttl time.Duration) bool {
	return ttl >= max(x.caps.MinTTL, 50*time.Millisecond) && ttl <= x.mostTTL()
}

// excludes wants l to hold its lock, and releases it.
func (x *extreme) excludes(l *lock.Lease, field string, d time.Duration) {
	if err := l.Err(); err != nil {
		x.errorf("a lease with %s %v: want it held, got %v", field, d, err)
	}
	x.refused(x.other.Mutex(l.Name()), "a lock that is held with "+field+" "+d.String())
	x.mustUnlock(l, "the holder with "+field+" "+d.String())
}

func (x *extreme) ttl(d time.Duration) {
	l, err := x.c.Mutex(x.key("ttl"), lock.WithTTL(d)).TryLock(x.ctx)
	if x.judge("ttl", d, x.accepts(d), err) {
		x.excludes(l, "ttl", d)
	}
}

func (x *extreme) extend(d time.Duration) {
	l := x.mustLock(x.c.Mutex(x.key("extend")), "a free key")
	err := l.Extend(x.ctx, d)
	// A session keeps no grant for longer than its own TTL.
	x.judge("ttl", d, x.accepts(d) && (err == nil || x.caps.Loss != backend.LossSession || d <= x.longTTL()), err)
	x.excludes(l, "ttl", d)
}

// wait waits for a lock that is held, also under a deadline that is as far away.
func (x *extreme) wait(d time.Duration) {
	key := x.key("wait")
	holder := x.mustLock(x.c.Mutex(key), "a free key")
	ctx := context.WithoutCancel(x.ctx) // its deadline is earlier than most of the limits
	m := x.w.c.Mutex(key, lock.WithWait(d))
	switch {
	case d < 0:
		_, err := m.Lock(ctx)
		x.judge("wait", d, false, err)
	case d == 1:
		if got := x.end(x.slack(), "Lock with a wait limit of 1ns", x.lockAsync(ctx, m)); !errors.Is(got.err, lock.ErrWaitLimit) {
			x.errorf("Lock of a held key with a wait limit of 1ns: want ErrWaitLimit, got %v", got.err)
		}
	default:
		got := x.waiting(ctx, x.w, m, "Lock with a wait limit of "+d.String())
		x.stillWaits("for a holder, with a wait limit of "+d.String(), got)
		x.mustUnlock(holder, "the holder")
		x.excludes(x.granted(x.slack(), "a waiter with a wait limit of "+d.String(), got).lease, "wait", d)
		return
	}
	x.excludes(holder, "wait", d)
}

func (x *extreme) minHold(d time.Duration) {
	key := x.key("min-hold")
	l, err := x.c.Mutex(key, lock.WithMinHold(d)).TryLock(x.ctx)
	if !x.judge("min hold", d, d >= 0, err) {
		return
	}
	x.mustUnlock(l, "the holder")
	if d <= 1 {
		x.free(x.other, key, "a lock with a minimum hold of "+d.String(), x.slack())
		return
	}
	x.refused(x.other.Mutex(key), "a lock within its minimum hold of "+d.String())
	if _, err := x.other.Break(x.ctx, key); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		x.errorf("Break within a minimum hold of %v: want nil, got %v", d, err)
	}
}
