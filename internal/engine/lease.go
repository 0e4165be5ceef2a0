package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Lease is one use of a held grant: the first, or one that reentry added.
type Lease struct {
	held     *heldGrant
	ctx      leaseContext
	cancel   context.CancelCauseFunc
	released error // the error of this lease if others of the grant go on; guarded by held.mu
	nested   bool  // reentry added it

	Place  string      // where the program asked for it, for reports; may be empty
	waited atomic.Bool // see Waited
}

// newLease returns a lease with the values of a context. The caller adds it to h.
func newLease(values context.Context, h *heldGrant) *Lease {
	l := &Lease{held: h}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	l.ctx, l.cancel = leaseContext{Context: ctx, lease: l}, cancel
	return l
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
func (l *Lease) Context() context.Context { return &l.ctx }

// Err returns why the lease has ended, as made by Config.EndErr, or nil while it is held
// and trusted.
func (l *Lease) Err() error {
	err := l.held.endCause()
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	if l.released != nil {
		return l.released
	}
	return err
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

// leaseContext ends with its lease. Err looks at the clock, so a process that was stopped
// finds an expired lease ended before a timer has fired.
type leaseContext struct {
	context.Context // ended by the lease
	lease           *Lease
}

func (c *leaseContext) Err() error {
	_ = c.lease.Err() // ends the embedded context if the lease has expired
	return c.Context.Err()
}

func (c *leaseContext) Value(key any) any {
	if k, ok := key.(heldKey); ok && k == (heldKey{c.lease.held.engine, c.lease.held.req.Key}) {
		return c.lease.held
	}
	return c.Context.Value(key)
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

// detachedContext has the values of one context and the end of another.
type detachedContext struct {
	context.Context
	values context.Context // without cancellation
}

// detach returns until with the values of from.
func detach(from, until context.Context) context.Context {
	return detachedContext{until, context.WithoutCancel(from)}
}

func (d detachedContext) Value(key any) any {
	if v := d.values.Value(key); v != nil {
		return v
	}
	return d.Context.Value(key)
}
