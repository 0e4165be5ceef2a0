// Package backend is the contract between package lock and a driver.
//
// A driver is the protocol of one coordination service and nothing else: it
// takes, extends and frees a key for one attempt at a time. Whatever does not
// depend on the service is done once, in package lock: validation of names and
// durations, attempt ids, renewal, the trust rule, retries and jitter where a
// driver has no queue, reentry, cleaning up after ambiguous outcomes, events
// and error wrapping. Package conformance holds a driver to this contract.
//
// In comments of this package "must", "may" and "never" are meant as written.
package backend

import (
	"context"
	"time"
)

// Bounds that package lock enforces before a driver sees a request.
const (
	MaxName     = 1024 // bytes of a lock's name; a driver may declare less
	MaxMetadata = 256  // bytes of Request.Metadata
)

// Backend is what every driver must implement. All methods must be safe for
// concurrent use and must return soon after their context ends.
//
// The errors a driver returns are part of the contract:
//
//   - [ErrLocked] (best as a [*LockedError]): somebody else holds the key.
//   - [ErrLost]: the service itself says that this attempt does not hold the
//     key. It is authoritative: never return it for a failed exchange.
//   - [ErrUncertain]: the request may have been executed, its outcome is not
//     known. The caller answers a failed acquire with Abandon.
//   - [ErrInvalid]: the request can never succeed as it is.
//   - anything else: the request was certainly not executed, or changed nothing.
//
// When a context ended the exchange, its error must be reachable by errors.Is
// beside the sentinel. No error may contain a password.
type Backend interface {
	// TryAcquire makes one attempt to take req.Key and never waits for its
	// holder. It must be idempotent on req.Owner: sent twice (as a client library
	// that retries does), it is granted once. It must not overtake those who wait
	// in the backend's queue, if it has one.
	TryAcquire(ctx context.Context, req Request) (Grant, error)

	// Abandon makes sure that nothing remains of the attempt req.Owner on req.Key,
	// whose outcome is not known: a grant is released, a place in the queue is
	// given up, and a request of that attempt which is still on its way never
	// succeeds later (as far as the service allows; else that is a caveat). It is
	// idempotent, and nil means that this was acknowledged by the service.
	Abandon(ctx context.Context, req Request) error

	// Capabilities says what the backend guarantees. It must be constant, and it
	// is verified by the conformance suite.
	Capabilities() Capabilities

	// Close frees what the driver itself opened, and nothing that it was given.
	// Package lock has released all grants before.
	Close(ctx context.Context) error
}

// Grant is one successful attempt. The core calls its methods one at a time,
// except that Release may overlap a Renew whose context has been cancelled, and that
// any of them may overlap a RenewBatch in which nobody waits for this grant any more.
type Grant interface {
	// Token is the fencing token: constant for this grant and greater than that of
	// every earlier grant of the same key. Zero if the backend has none.
	Token() uint64

	// Until is the instant, on the local monotonic clock, up to which the service
	// is certain to keep the grant if it is not renewed. It must be counted from
	// before the request that the service answered was sent, never from the
	// receipt of a reply or of a pushed message. A zero time leaves the counting to
	// the core, which takes the time before it called TryAcquire or Renew and adds
	// the TTL: right for every backend that grants only in a direct reply. A
	// backend with no expiry (LossProcess) also returns zero.
	Until() time.Time

	// Renew verifies that this very grant still holds the key and extends it to ttl
	// from now. It never takes a key that is free, and never shortens what the service
	// keeps the grant for: a renewal that arrives late must not cut a longer one
	// short. Nil moves Until, which may then be earlier than what is kept.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release frees the key if this very grant holds it, and never anybody else's.
	// It is idempotent towards the service: called again after an error it
	// completes, and returns ErrLost if the key was not (or is no longer) ours.
	Release(ctx context.Context) error
}

// Keeper is implemented by a Grant of a service with TTLs that can be left to
// expire at a given time, sooner or later than it would. Package lock uses it for
// the minimum hold of a lease that has ended: there is no holder any more to whom
// the longer time was promised. Without it Renew serves, which never shortens.
type Keeper interface {
	// Keep makes the service keep the grant, if it still holds the key, for d from now
	// and no longer.
	Keep(ctx context.Context, d time.Duration) error
}

// Request is one attempt to take a key.
type Request struct {
	// Key is the name as the user gave it: 1 to MaxName bytes of any value. The
	// driver escapes it injectively for its service.
	Key string
	// Owner identifies this attempt and no other: 32 lower-case hex digits, fresh
	// for each attempt, random.
	Owner string
	// TTL is how long the service keeps the grant without a renewal. It is within
	// the driver's declared bounds.
	TTL time.Duration
	// Metadata says who asks, for those who inspect. At most MaxMetadata bytes of
	// valid UTF-8 without control characters.
	Metadata string

	// OnWait, if not nil, is called by a Waiter once, when the attempt found the key
	// held and begins to wait. It must not block.
	OnWait func(*LockedError)
	// OnLost, if not nil, is called when the service tells, unasked, that a grant of
	// this attempt is gone (broken, session over). It may be called at any time
	// after the grant came into being, even before TryAcquire or Acquire returned,
	// from any goroutine, more than once, and does not block. Never called for an
	// ordinary release.
	OnLost func(reason error)
}

// Waiter is implemented by a backend that has a queue of its own. Without it
// package lock polls TryAcquire with jitter.
type Waiter interface {
	// Acquire takes req.Key, waiting in the backend's queue until it is granted or
	// ctx ends. An attempt that ctx ends returns ErrUncertain joined with the
	// context's error unless it is certain that nothing of it remains; the caller
	// then calls Abandon. Errors of the service before the attempt is in the queue
	// are returned, after as long as opening may take at the latest; afterwards
	// Acquire rides out a failing service for up to req.TTL since the first failure.
	//
	// A pushed grant may be shorter than req.TTL; the core renews it in time.
	Acquire(ctx context.Context, req Request) (Grant, error)
}

// BatchRenewer is implemented by a backend that can renew many grants in fewer
// requests than one each. Package lock uses it when more than a few renewals are due
// at once, for up to some hundred, and a few batches may be under way at a time.
type BatchRenewer interface {
	// RenewBatch renews grants of this backend, each as its own Renew would: the error
	// at i is what Renew of the grant at i would have returned, and one that fails must not
	// keep the others from being renewed, unless the service fails as a whole. A grant
	// stands in it once at most. All are answered together, so it is for grants of
	// which one does not have to wait for a part of the service that another does not
	// need.
	//
	// A backend that cannot, as it is deployed, renews none and returns
	// [errors.ErrUnsupported] for each: package lock then renews them one by one, and
	// asks no more.
	RenewBatch(ctx context.Context, renewals []Renewal) []error
}

// Renewal is one of a batch.
type Renewal struct {
	Grant Grant
	TTL   time.Duration // from now
}

// Inspector tells who holds and who waits for a key.
type Inspector interface {
	Inspect(ctx context.Context, key string) (Info, error)
}

// Lister lists the keys held at the moment, in no order, each at most once
// while nothing changes. It stops with yield's first false.
type Lister interface {
	List(ctx context.Context, yield func(Info) bool) error
}

// Breaker frees a key whoever holds it. The next in the queue gets it, the token
// still rises, and the old holder is told where the service can push. It
// returns the holder it removed, or nil if the key was free.
type Breaker interface {
	Break(ctx context.Context, key string) (*Holder, error)
}

// Notifier is implemented by a backend that has to report what is no failure of any
// request: that a part of the service fails while the rest serves. Package lock
// gives it its log.
type Notifier interface {
	// Notify sets what is called once when such a part begins to fail, with the error,
	// and once with nil when it serves again. What was to be said before is said now.
	Notify(say func(what string, err error))
}

// Pinger makes one cheap round trip to the service.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Party is somebody who holds or waits.
type Party struct {
	// Owner is the attempt's id, or what stands in its place for a foreign holder.
	Owner string `json:"owner"`
	// Metadata is what the party said of itself, "" if unknown.
	Metadata string `json:"metadata,omitempty"`
	// Age is for how long the party has been there, by the service's own clock; zero
	// if the service does not know. A holder has held for no longer than that.
	Age time.Duration `json:"age_ns,omitempty"`
}

// Holder is the party that holds a key.
type Holder struct {
	Party
	// Token is the holder's fencing token, zero if it has none.
	Token uint64 `json:"token,omitempty"`
	// Left is how long the service keeps the grant unless it is renewed, at the time
	// of the answer. Zero if it does not expire.
	Left time.Duration `json:"left_ns,omitempty"`
	// Foreign is set when the key was not taken by this library.
	Foreign bool `json:"foreign,omitempty"`
}

// Info is the state of a key at one moment.
type Info struct {
	Name string `json:"name"`
	// Holder is nil if the key is free.
	Holder *Holder `json:"holder"`
	// Waiters stand in the order in which they will be served, where that is known.
	Waiters []Party `json:"waiters,omitempty"`
}
