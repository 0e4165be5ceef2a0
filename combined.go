package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/engine"
)

// combinedLease is the lease of several leases. It has no timers: each part renews itself.
type combinedLease struct {
	label  string
	leases []*Lease     // in the order in which they were granted
	ctx    leaseContext // of a combinedContext
	cancel context.CancelCauseFunc

	mu    sync.Mutex // guards cause
	cause error      // why it has ended; nil while all parts are held
}

// newCombinedLease makes one lease of several, with the values of a context.
func newCombinedLease(values context.Context, name string, leases []*Lease) *Lease {
	c := &combinedLease{label: name, leases: leases}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	l := &Lease{of: c}
	c.ctx.Context, c.ctx.lease = &combinedContext{ctx, c}, l
	c.cancel = cancel
	this := weak.Make(l) // the parts do not keep a forgotten lease reachable
	for _, p := range leases {
		context.AfterFunc(p.of.Context().Context, func() {
			if l := this.Value(); l != nil {
				_ = l.Err()
			}
		})
	}
	return l
}

// combinedContext ends with a combined lease.
type combinedContext struct {
	context.Context // ended by the lease
	c               *combinedLease
}

func (c *combinedContext) Err() error {
	_ = c.c.Err() // ends the embedded context if a part has expired
	return c.Context.Err()
}

func (c *combinedContext) Value(key any) any {
	if engine.IsHeldKey(key) {
		for _, p := range c.c.leases {
			if v := p.Context().Value(key); v != nil {
				return v
			}
		}
	}
	return c.Context.Value(key)
}

// Err returns why the lease has ended, or nil. It asks each part without the mutex, since
// a part that finds that it has expired calls observers.
func (c *combinedLease) Err() error {
	c.mu.Lock()
	cause := c.cause
	c.mu.Unlock()
	if cause == nil {
		if cause = firstEnd(c.leases); cause != nil {
			cause = c.end(cause)
		}
	}
	return cause
}

// end ends the lease, once, and returns why it has ended.
func (c *combinedLease) end(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
		c.cancel(cause)
	}
	return c.cause
}

func (c *combinedLease) Key() string                 { return c.label }
func (c *combinedLease) Owner() string               { return "" }
func (c *combinedLease) Token() uint64               { return 0 }
func (c *combinedLease) GrantedAs() (string, uint64) { return "", 0 }
func (c *combinedLease) Slots() []int                { return nil }
func (c *combinedLease) Context() *leaseContext      { return &c.ctx }

func (c *combinedLease) waited(bool) {
	for _, p := range c.leases {
		p.of.waited(false)
	}
}

func (c *combinedLease) parts(*Lease) []*Lease {
	var out []*Lease
	for _, p := range c.leases {
		out = append(out, p.Parts()...)
	}
	return out
}

// Expires returns the earliest end of the parts that have one.
func (c *combinedLease) Expires() time.Time {
	var first time.Time
	for _, p := range c.leases {
		if e := p.Expires(); !e.IsZero() && (first.IsZero() || e.Before(first)) {
			first = e
		}
	}
	return first
}

func (c *combinedLease) renew(ctx context.Context, op string, ttl time.Duration) error {
	for _, p := range c.leases {
		if err := c.Err(); err != nil {
			return err
		}
		if err := p.of.renew(ctx, op, ttl); err != nil {
			if cause := c.Err(); cause != nil {
				return cause
			}
			return err
		}
	}
	return c.Err()
}

func (c *combinedLease) SetMinHoldStart(t time.Time) {
	for _, p := range c.leases {
		p.of.SetMinHoldStart(t)
	}
}

func (c *combinedLease) downgrade(context.Context) error {
	return opError("downgrade", c.label, backend.Invalid("lease", c.label, "one of a single lock: downgrade before locking others"))
}

// unlock ends the lease, then its parts.
func (c *combinedLease) unlock(ctx context.Context) error {
	_ = c.Err() // a loss that has not been noticed stays a loss
	_ = c.end(opError("hold", c.label, ErrReleased))
	if err := unlockEach(ctx, c.leases); err != nil {
		return opError("unlock", c.label, err)
	}
	return nil
}

// unlockInOrder is for how long parts are freed one after the other, all together.
const unlockInOrder = 100 * time.Millisecond

// unlockEach frees all leases, last first. A backend that does not answer delays the others
// by unlockInOrder only, so the whole is bounded as one Unlock is.
func unlockEach(ctx context.Context, ls []*Lease) error {
	var all sync.WaitGroup
	errs := make([]error, len(ls))
	ordered, stop := context.WithTimeout(context.Background(), unlockInOrder)
	defer stop()
	for i, l := range slices.Backward(ls) {
		freed := make(chan struct{})
		all.Go(func() {
			defer close(freed)
			errs[i] = l.Unlock(ctx)
		})
		select {
		case <-freed:
		case <-ordered.Done():
		}
	}
	all.Wait()
	var err error
	for _, e := range errs {
		switch {
		case e == nil:
		case err == nil:
			err = e
		case errors.Is(err, ErrLost) && errors.Is(e, ErrLost): // one loss says it all
		default:
			err = fmt.Errorf("%w; %w", err, e)
		}
	}
	return err
}
