package engine

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Lease is one use of a held grant: the first, or one that reentry added.
type Lease struct {
	held   *heldGrant
	values context.Context // the caller's
	nested bool            // reentry added it

	// Guarded by held.mu.
	released error // the error of this lease if others of the grant go on
	ctx      context.Context
	cancel   context.CancelCauseFunc

	Place  string      // where the program asked for it, for reports; may be empty
	waited atomic.Bool // see Waited
}

// Key returns the key of the lease.
func (l *Lease) Key() string { return l.held.req.Key }

// Owner returns the owner id of the request that was granted.
func (l *Lease) Owner() string { return l.held.req.Owner }

// Token returns the fencing token, zero if there is none.
func (l *Lease) Token() uint64 { return l.held.grant.Token() }

// GrantedAs returns the owner id and the token by which the driver knows the grant: those
// of the lease, unless the grant is shared.
func (l *Lease) GrantedAs() (owner string, token uint64) {
	type shared interface{ GrantedAs() (string, uint64) }
	if g, ok := backend.As[shared](l.held.grant); ok {
		return g.GrantedAs()
	}
	return l.Owner(), l.Token()
}

// Context returns a context that ends with the lease, with Err as its cause.
func (l *Lease) Context() context.Context { return (*leaseContext)(l) }

// Err returns why the lease has ended, as made by Config.EndErr, or nil while it is held
// and trusted.
func (l *Lease) Err() error {
	h := l.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expireLocked()
	return cmp.Or(l.released, h.cause)
}

// Expires returns the instant up to which the lease is trusted, zero if it does not
// expire.
func (l *Lease) Expires() time.Time {
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	return l.held.trustedUntil
}

// SetMinHoldStart makes the minimum hold count from t. It does nothing for a nested lease.
func (l *Lease) SetMinHoldStart(t time.Time) {
	if l.nested {
		return
	}
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	l.held.minHoldStart = t
}

// StopTimer stops the timer of the lease: a test does what a stopped process does.
func (l *Lease) StopTimer() {
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	if l.held.timer != nil {
		l.held.timer.Stop()
	}
}

// leaseContext is the context of its lease. Err looks at the clock, so a process that was stopped
// finds an expired lease ended before a timer has fired. The channel is made when it is asked for.
type leaseContext Lease

func (c *leaseContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *leaseContext) Err() error {
	if (*Lease)(c).Err() != nil {
		return context.Canceled
	}
	return nil
}

func (c *leaseContext) Done() <-chan struct{} { return c.context().Done() }

func (c *leaseContext) Value(key any) any {
	if k, ok := key.(heldKey); ok && k == (heldKey{c.held.engine, c.held.req.Key}) {
		return c.held
	}
	return c.context().Value(key)
}

// context returns the context of package context that the lease ends, and makes it the first time.
func (c *leaseContext) context() context.Context {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(c.values))
		if c.released != nil || c.held.cause != nil {
			(*Lease)(c).endContextLocked()
		}
	}
	return c.ctx
}

// endContextLocked ends the context, if it was asked for. It runs under the mutex, so that a context and its lease end
// at the same time for all observers: cancelling runs no code of others.
func (l *Lease) endContextLocked() {
	if l.cancel != nil {
		l.cancel(cmp.Or(l.released, l.held.cause))
	}
}

// heldKey is the context key of the held grant of a key, for reentry.
type heldKey struct {
	engine *Engine
	key    string
}

// IsHeldKey reports whether key is that of a held grant. The context of several leases
// asks those of its parts for it.
func IsHeldKey(key any) bool {
	_, ok := key.(heldKey)
	return ok
}
