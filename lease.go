package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Lease is one hold of a Mutex. It is safe for concurrent use. A lease ends once,
// by Unlock, by loss or by closing its client, and never comes back: what it says
// of itself concerns this hold only, never that of a successor.
type Lease struct {
	of     holding
	ctx    leaseContext
	cancel context.CancelCauseFunc
	ended  error // of this lease, while its hold goes on under others; under h.mu
	nested bool  // by reentry: the hold was another's before

	begun    atomic.Bool   // Unlock has been called
	unlocked chan struct{} // closed when the first Unlock has returned
	err      error         // what it returned
}

// holding is what a lease is a lease of: one hold, or those of several leases.
type holding interface {
	name() string
	owner() string
	token() uint64
	atBackend() BackendHold
	parts(l *Lease) []*Lease
	endOf(l *Lease) error // why the lease has ended, nil while it is held and trusted
	expiresAt() time.Time // zero: no expiry
	renewFor(ctx context.Context, l *Lease, op string, ttl time.Duration) error
	unlock(ctx context.Context, l *Lease) error
	find(k holdKey) *hold // for reentry; nil if it is not among them
	keepFrom(t time.Time) // the minimum hold counts from t
}

// newLease makes a lease with the values of a context. It must be added to its hold.
func newLease(values context.Context, of holding) *Lease {
	l := &Lease{of: of, unlocked: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	l.ctx, l.cancel = leaseContext{Context: ctx, l: l}, cancel
	return l
}

// keepFrom makes the minimum hold count from t, unless it is not this lease's to say.
func (l *Lease) keepFrom(t time.Time) {
	if !l.nested {
		l.of.keepFrom(t)
	}
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.of.name() }

// Token returns the fencing token: constant for this hold and greater than that of
// every earlier hold of the same name. ok is false if the backend has none, and for
// a lease of All, whose Parts have one each. It may be read after the lease has
// ended.
func (l *Lease) Token() (fence uint64, ok bool) {
	t := l.of.token()
	return t, t != 0
}

// Owner returns the random id by which the backend knows this hold; Inspect shows
// the same. It is empty for a lease of All. With local hand-off it is known within the
// client, see BackendHold.
func (l *Lease) Owner() string { return l.of.owner() }

// BackendHold returns by what the backend itself knows this hold. It is Owner and
// Token, except with local hand-off, where several leases share, one after the other,
// a grant of the backend. It is zero for a lease of All.
func (l *Lease) BackendHold() BackendHold { return l.of.atBackend() }

// BackendHold is by what a backend knows a hold: for those who ask it themselves, such
// as the guards that some drivers have.
type BackendHold struct {
	owner string
	token uint64
}

// Owner returns the id of the attempt that the backend granted.
func (h BackendHold) Owner() string { return h.owner }

// Token returns the fencing token that the backend gave, zero if it has none.
func (h BackendHold) Token() uint64 { return h.token }

// Parts returns the leases that this one consists of, in the order in which they were
// taken: those of the parts of All, or both of a lock that is being migrated. Any
// other lease is its only part. They are for reading names and tokens: ending one
// ends the whole.
func (l *Lease) Parts() []*Lease { return l.of.parts(l) }

// Context returns a context that ends with the lease; context.Cause then tells
// ErrLost, ErrReleased or ErrClosed. It has the values of the context given to
// Lock or TryLock, and neither its cancellation nor its deadline. Its Err looks at
// the clock; that of a context derived from it ends when a timer fires, which in
// a process that was stopped may be a moment later.
func (l *Lease) Context() context.Context { return &l.ctx }

// Done is closed when the lease has ended, for whatever reason; Err says which.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns nil while the lease is held and trusted, and afterwards an error
// that matches ErrLost, ErrReleased or ErrClosed. It does not ask the backend.
func (l *Lease) Err() error { return l.of.endOf(l) }

// Expires returns the instant up to which the lease is trusted if it is not
// renewed any more, margin subtracted. It is zero if the hold lasts as long as its
// process.
func (l *Lease) Expires() time.Time { return l.of.expiresAt() }

// Check asks the backend whether this lease still holds the lock. Nil means that
// it did when the backend answered. ErrLost ends the lease; any other error leaves
// it as it is. Unless the lease is fixed (WithoutRenewal), Check also renews it.
func (l *Lease) Check(ctx context.Context) error {
	return l.of.renewFor(ctx, l, "check", 0)
}

// Extend renews the lease so that it lasts ttl from now, and with renewal on keeps
// it at that from now on. With a ttl shorter than what is left the lease ends
// earlier; the backend frees the lock then if the process lives, and else when the
// longer time has passed.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.of.renewFor(ctx, l, "extend", ttl)
}

// Unlock ends the lease and frees the lock. The lease's context ends first. Unlock
// works under a context that has ended, takes at most 5 s and not much longer than
// the lease would have lasted, and never touches the hold of a successor. Calling
// it again returns what the first call returned.
//
// It returns an error that matches ErrLost if the lock had been lost before, and
// ErrUncertain if the backend did not acknowledge in time; the client then goes
// on trying in the background until the lease has run out.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.begun.CompareAndSwap(false, true) {
		defer close(l.unlocked) // also if an observer panics
		l.err = l.of.unlock(ctx, l)
		return l.err
	}
	<-l.unlocked
	return l.err
}

// hold is what all leases of one grant share: the outer one and those that
// reentry has nested in it.
type hold struct {
	client   *Client
	cfg      *mutexConfig
	req      backend.Request
	grant    backend.Grant
	acquired time.Time
	over     chan struct{} // closed when the hold ends
	turn     chan struct{} // holds a value while the grant is being renewed: one at a time
	alone    bool          // the last renewal was in a batch that failed; of the one whose turn it is

	mu     sync.Mutex
	leases []*Lease      // not yet unlocked; none only if ended
	from   time.Time     // the minimum hold counts from then
	ttl    time.Duration // asked for at the next renewal
	until  time.Time     // trusted until; zero: no expiry
	kept   time.Time     // the service may keep the grant until then, whatever is known
	full   bool          // the backend has granted the whole TTL at least once
	ended  error         // nil while held
	last   error         // of the last renewal, for the message of a loss
	trust  *time.Timer   // fires at until
	renew  *time.Timer   // fires when the next renewal is due
	stop   context.CancelFunc
	told   bool   // observers have been told of the grant
	untold func() // tells them of the end, which came before that
}

// margin is subtracted from what the backend grants: it covers clock rates that
// differ by 0.1 % and a timer that is late on a busy machine.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 10*time.Millisecond), 500*time.Millisecond) + ttl/1000
}

// trustedUntil applies the trust rule to a grant that was made or renewed by
// a request sent at sent. A pushed grant may last for less than the TTL.
func trustedUntil(sent time.Time, ttl time.Duration, g backend.Grant) time.Time {
	until := g.Until()
	if until.IsZero() {
		return sent.Add(ttl - margin(ttl))
	}
	return until.Add(-margin(min(ttl, max(time.Until(until), 0))))
}

// end returns why the hold has ended, or nil. A hold whose trust has run out
// ends here if its timer has not been there first.
func (h *hold) end() error {
	h.mu.Lock()
	if h.ended == nil && h.expiredLocked(time.Now()) {
		h.mu.Unlock()
		h.lose(nil)
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	return h.ended
}

func (h *hold) expiredLocked(now time.Time) bool {
	return !h.until.IsZero() && !now.Before(h.until)
}

// endOf returns why a lease has ended, or nil: it may end before its hold.
func (h *hold) endOf(l *Lease) error {
	err := h.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	return err
}

func (h *hold) name() string            { return h.req.Key }
func (h *hold) owner() string           { return h.req.Owner }
func (h *hold) token() uint64           { return h.grant.Token() }
func (h *hold) atBackend() BackendHold  { return atBackend(h.req.Owner, h.grant) }
func (h *hold) parts(l *Lease) []*Lease { return []*Lease{l} }

// find returns the hold if it is the one that is looked for.
func (h *hold) find(k holdKey) *hold {
	if k != (holdKey{h.client, h.req.Key}) {
		return nil
	}
	return h
}

// finish moves the hold to its end, once: it stops the timers and any renewal
// under way, and ends the contexts of its leases. It reports whether this call was
// the one.
func (h *hold) finish(why error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.finishLocked(why)
}

func (h *hold) finishLocked(why error) bool {
	if h.ended != nil {
		return false
	}
	h.ended = why
	for _, t := range []*time.Timer{h.trust, h.renew} {
		if t != nil {
			t.Stop()
		}
	}
	if h.stop != nil {
		h.stop()
	}
	// Under the mutex, so that nobody sees the one ended and the other not: a context
	// runs no code of others while it is cancelled.
	for _, l := range h.leases {
		l.cancel(why)
	}
	close(h.over)
	h.client.forget(h)
	return true
}

// lose ends the hold as lost. reason is the backend's word that it is not ours, or
// nil if the trust ran out.
func (h *hold) lose(reason error) {
	c := h.client
	if !c.beginLate() { // so that closing waits for the cleaning up below
		h.finish(c.wrap("hold", h.req.Key, ErrClosed))
		return
	}
	defer c.done()
	authoritative := reason != nil
	if !authoritative {
		h.mu.Lock()
		reason = errors.New("its TTL has passed")
		if h.last != nil {
			reason = fmt.Errorf("not renewed in time: %w", h.last)
		}
		h.mu.Unlock()
	}
	if !errors.Is(reason, ErrLost) {
		reason = fmt.Errorf("%w: %w", ErrLost, reason)
	}
	err := c.wrap("hold", h.req.Key, reason)
	if !h.finish(err) {
		return
	}
	if !authoritative {
		// The backend may keep the key for us a little longer: nobody needs to wait for that.
		defer h.cleanUp("release of a lost lease")
	}
	c.lost(h, err)
}

// add gives the hold another lease, unless it has ended.
func (h *hold) add(l *Lease) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return false
	}
	h.leases = append(h.leases, l)
	return true
}

// remove ends one lease. If it was the last, the hold ends with it: in the same
// step, so that nobody can nest another lease in between. The result is why the
// hold had ended before, if so, and whether it was the last.
func (h *hold) remove(l *Lease) (why error, last bool) {
	if why = h.end(); why != nil {
		return why, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return h.ended, false
	}
	released := h.client.wrap("hold", h.req.Key, ErrReleased)
	if len(h.leases) == 1 {
		h.finishLocked(released)
		return nil, true
	}
	h.leases = slices.DeleteFunc(h.leases, func(o *Lease) bool { return o == l })
	l.ended = released
	l.cancel(released)
	return nil, false
}
