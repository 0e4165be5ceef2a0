package lock

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/interlock-go/lock/internal/engine"
)

// Lease is the right of a holder of a Mutex. It is safe for concurrent use. A lease ends
// once, by Unlock, by loss or by closing its client. Its methods concern this lease only,
// never that of a successor.
//
// The service keeps a granted lock for a TTL (30 s by default), and the client renews it every
// third of the TTL. The holder trusts its lease until
//
//	the instant before the last successful request was sent + TTL - margin
//
// on the local monotonic clock. At that instant at the latest the lease's context ends
// with [ErrLost], whatever the network does. So it ends before the service can grant the
// lock to another client. The margin covers clock rates that differ by up to 0.1 % and
// timers that fire late: TTL/20, at least 10 ms and at most 500 ms, plus TTL/1000. (chrony
// needs maxslewrate 500 for that; see docs/operations.md.)
//
// A stopped process (a debugger, a long pause of the scheduler) notices nothing while it
// is stopped. It finds its lease ended when it checks next, but requests that it sent
// before may still arrive.
//
// The monotonic clock of a suspended machine stands still. On Linux [Lease.Err] and the Err
// of its context count that time too, and [Lease.Done] is closed by the next timer, within
// a third of the TTL. On other systems, and in a virtual machine that its host paused, the
// client learns of the loss when its next renewal is answered: within a third of the TTL if
// the network is back by then, else when the TTL has passed on the clock that stood still.
// Two copies of a virtual machine that are resumed from one snapshot have the same lease and
// the same token.
//
// Against a stopped or suspended holder only the resource itself can protect: pass it the
// fencing token ([Lease.Token]) and let it refuse a token lower than the highest it has seen.
type Lease struct {
	of     lease
	single singleLease // of, for a lock of a Client

	unlocking once
	unlockErr error // the result of the first Unlock
}

// lease is what a Lease stands for: one grant, or several leases. Its errors are those of
// the methods of Lease.
type lease interface {
	Key() string
	Owner() string
	Token() uint64
	GrantedAs() (owner string, token uint64)
	Context() *leaseContext
	Err() error
	Expires() time.Time
	SetMinHoldStart(t time.Time)

	parts(l *Lease) []*Lease
	waited(pins bool)                                              // something waits for the end; pins: as long as it does, it refers to the Lease
	renew(ctx context.Context, op string, ttl time.Duration) error // ttl is zero for "check"
	unlock(ctx context.Context) error
	downgrade(ctx context.Context) error
	Slots() []int
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.of.Key() }

// Token returns the fencing token: constant for this lease and greater than that of every
// earlier lease of the same name. ok is false if the backend has none, and for a lease of
// All, whose Parts have one each. It may be read after the lease has ended.
func (l *Lease) Token() (fence uint64, ok bool) {
	t := l.of.Token()
	return t, t != 0
}

// Owner returns the random id by which the backend knows this lease; Inspect returns the
// same. It is empty for a lease of All. With local hand-off it is known within the client
// only, see BackendHold.
func (l *Lease) Owner() string { return l.of.Owner() }

// BackendHold returns by what the backend itself knows the grant of this lease, for a program
// that asks the backend, such as the guards that some drivers have. It is Owner and Token,
// except with local hand-off, where several leases share one grant, one after the other. It is
// zero for a lease of All.
func (l *Lease) BackendHold() (owner string, token uint64) { return l.of.GrantedAs() }

// Parts returns the leases that this one consists of, in the order in which they were
// granted: those of the parts of All, or both of a lock that is being migrated. Any other
// lease is its only part. They are for reading names and tokens: ending one ends the whole.
func (l *Lease) Parts() []*Lease { return l.of.parts(l) }

// Context returns a context that ends with the lease. context.Cause then returns an error
// that matches ErrLost, ErrReleased or ErrClosed. The context has the values of the context
// given to Lock or TryLock, and neither its cancellation nor its deadline.
//
// Its Err looks at the clock. A context derived from it ends when a timer fires, which in
// a process that was stopped may be a moment later.
func (l *Lease) Context() context.Context { return l.of.Context() }

// Done is closed when the lease has ended, for whatever reason; Err returns which.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held and trusted. Afterwards it returns an error that
// matches ErrLost, ErrReleased or ErrClosed. It does not ask the backend.
func (l *Lease) Err() error { return l.of.Err() }

// Expires returns the instant up to which the lease is trusted if it is not renewed any
// more, after subtraction of the margin. It is zero if the lease lasts as long as its
// process.
func (l *Lease) Expires() time.Time { return l.of.Expires() }

// Check asks the backend whether this lease still holds the lock. Nil means that it did
// when the backend answered. An error that matches ErrLost ends the lease; any other error
// does not change it. Unless the lease is fixed (WithoutRenewal), Check also renews it.
func (l *Lease) Check(ctx context.Context) error { return l.of.renew(ctx, "check", 0) }

// Extend renews the lease so that it lasts ttl from now. Unless the lease is fixed, later
// renewals use the same ttl. With a ttl shorter than what is left the lease ends earlier:
// the client then frees the lock; if the process has died, the backend frees it when the
// longer time has passed.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.of.renew(ctx, "extend", ttl)
}

// Downgrade makes the lease of a writer that of a reader, in one step: nothing else is granted in
// between, and readers that wait at the head of the queue are granted the lock. It never waits
// for other holders; permits that wait go on to wait. The token stays. It does nothing to the
// lease of a reader, and returns an ErrInvalid for a lease of permits, and for one with nested
// leases (WithReentry). It repeats a request that failed until ctx ends or half
// of the time up to Expires has passed. If the error matches ErrUncertain, others may read
// already, or later: the lease is that of a reader from then on, and another call of Downgrade
// completes it. After any other error nothing has changed. There is no opposite, see RWMutex.
func (l *Lease) Downgrade(ctx context.Context) error { return l.of.downgrade(ctx) }

// Slots returns which of the permits 0 to n-1 of a Semaphore of n the lease holds, in rising order:
// the lowest that were free when it was granted. No other trusted lease but one nested in it has
// any of them, so a slot can number a worker, a shard or a port. It is nil for any other lease.
func (l *Lease) Slots() []int { return l.of.Slots() }

// Unlock ends the lease and frees the lock. The lease's context ends first. Unlock works
// under a context that has ended. It takes at most 5 s, and not much longer than the lease
// would have lasted. It never touches the lease of a successor. A second call returns what
// the first returned.
//
// Unlock returns an error that matches ErrLost if the lock had been lost before. If the
// backend does not acknowledge in time, the error matches ErrUncertain, and the client
// retries in the background until the lease has expired. An outage that begins while the
// lease is trusted is never reported as a loss.
func (l *Lease) Unlock(ctx context.Context) error {
	l.unlocking.do(func() { l.unlockErr = l.of.unlock(ctx) })
	return l.unlockErr
}

// singleLease is the lease of one lock of a client.
type singleLease struct {
	*engine.Lease
	client *Client
	ctx    leaseContext
}

func (s *singleLease) Context() *leaseContext { return &s.ctx }

func (s *singleLease) waited(pins bool) {
	if !pins {
		s.Waited()
	}
}

func (s *singleLease) parts(l *Lease) []*Lease { return []*Lease{l} }

func (s *singleLease) renew(ctx context.Context, op string, ttl time.Duration) error {
	if op == "extend" {
		if err := validTTL("ttl", ttl, s.client.core().caps); err != nil {
			return s.client.wrap(op, s.Key(), err)
		}
	}
	return s.client.wrap(op, s.Key(), s.Renew(ctx, ttl))
}

func (s *singleLease) downgrade(ctx context.Context) error {
	return s.client.wrap("downgrade", s.Key(), s.Downgrade(ctx))
}

func (s *singleLease) unlock(ctx context.Context) error {
	return s.client.wrap("unlock", s.Key(), s.Release(ctx))
}

// watch arranges that a lease is reported when the program has forgotten it. Nothing that held
// refers to may refer to l.
func (c *Client) watch(l *Lease, held *engine.Lease) {
	if c.cfg.place {
		held.Place = engine.CallerPlace("github.com/interlock-go/lock.")
	}
	if c.reports() || c.cfg.releaseForgotten {
		forgotten := reportForgotten
		if c.cfg.releaseForgotten {
			forgotten = releaseForgotten
		}
		runtime.AddCleanup(l, forgotten, held)
	}
}

func reportForgotten(held *engine.Lease)  { held.Forgotten(false) }
func releaseForgotten(held *engine.Lease) { held.Forgotten(true) }

// once runs a function once. Unlike those of sync.Once, later callers wait for it at a channel, so that a testing/synctest
// bubble sees that they are blocked.
type once struct {
	mu          sync.Mutex // guards the fields below
	begun, over bool
	ended       chan struct{} // made by the first caller that waits
}

func (o *once) do(f func()) {
	o.mu.Lock()
	first := !o.begun
	o.begun = true
	if !first && !o.over && o.ended == nil {
		o.ended = make(chan struct{})
	}
	over, ended := o.over, o.ended
	o.mu.Unlock()
	switch {
	case first:
		defer o.end() // also if an observer panics
		f()
	case !over:
		<-ended
	}
}

func (o *once) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if o.ended != nil {
		close(o.ended)
	}
}
