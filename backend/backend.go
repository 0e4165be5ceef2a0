// Package backend is the contract between package lock and a driver.
//
// A driver is the protocol of one coordination service and nothing else: it acquires,
// renews and releases a key for one attempt at a time. Package lock does all that does not
// depend on the service: it validates names and durations, makes owner ids, renews, applies
// the trust rule, polls for a driver without a queue, cleans up after unknown outcomes,
// reports events and wraps errors. Package conformance tests a driver against this contract.
//
// In comments of this package "must", "may" and "never" are meant as written.
package backend

import (
	"context"
	"time"
)

// Bounds that package lock enforces before a driver gets a request.
const (
	MaxName     = 1024 // bytes of a lock's name; a driver may declare less
	MaxMetadata = 256  // bytes of Request.Metadata

	// MaxTTL is the longest TTL; a driver may declare less. Sums of durations up to MaxTTL do not overflow.
	MaxTTL = 365 * 24 * time.Hour
)

// MaxProvisionalTTL is the longest time for which a service keeps a grant that it made for a
// waiter, until the client of that waiter renews it. It bounds the delay by dead waiters, see
// [Waiter].
const MaxProvisionalTTL = 3 * time.Second

// Backend is what every driver must implement. All methods must be safe for concurrent
// use and must return soon after their context ends.
//
// The errors of a driver are part of the contract:
//
//   - [ErrLocked] (best as a [*LockedError]): another attempt holds the key.
//   - [ErrLost]: the service itself says that this attempt does not hold the key. It is
//     authoritative: never return it for a failed exchange.
//   - [ErrInvalid]: the request can never succeed as it is.
//   - marked by [NotExecuted]: the service certainly did not execute the request and
//     never will. It was not sent, or the service refused it.
//   - [ErrUncertain], and every other error: the request may have been executed. The
//     caller answers a failed acquire with Abandon.
//
// If a context ended the exchange, errors.Is must find its error beside the sentinel. No
// error may contain a password.
//
// Connections that are open may die without a sign while new ones work: an address moved to
// another server, a router forgot them. After a request that had no answer in its time, the
// connections that were open when it began may all be dead. The next request of the driver
// must go over one that was opened, or has been read from, since then: the driver closes the
// idle ones, dials, or opens another stream. A request whose caller gave up after less than
// 100 ms is no sign of that.
//
// A wrapper of a Backend has a method Unwrap() Backend, see [As].
type Backend interface {
	// TryAcquire makes one attempt to acquire req.Key and never waits for its holder. It
	// must be idempotent on req.Owner: sent twice (as a client library that retries
	// does), it is granted once, and the service keeps that grant for req.TTL from the
	// last request. It must not overtake waiters in the queue of the backend, if it has one.
	TryAcquire(ctx context.Context, req Request) (Grant, error)

	// Abandon makes sure that nothing remains of the attempt req.Owner on req.Key, whose
	// outcome is not known: it releases a grant, gives up a place in the queue, and
	// prevents that a request of that attempt which is still in flight succeeds later (as
	// far as the service allows; else that is a caveat). It is idempotent. Nil means that
	// the service acknowledged this.
	Abandon(ctx context.Context, req Request) error

	// Capabilities returns what the backend guarantees. It must be constant. The
	// conformance suite verifies it.
	Capabilities() Capabilities

	// Close frees what the driver itself opened, and nothing that it was given. Package
	// lock has released all grants before.
	Close(ctx context.Context) error
}

// Grant is one successful attempt. Package lock calls its methods one at a time, with two
// exceptions: Release may overlap a Renew or a Downgrade that was called before, and any method
// may overlap a RenewBatch whose result for this grant is not awaited any more.
//
// A wrapper of a Grant has a method Unwrap() Grant, see [As].
type Grant interface {
	// Token is the fencing token: constant for this grant and greater than that of every
	// earlier grant of the same key. Zero if the backend has none.
	Token() uint64

	// Until is the instant, on the local monotonic clock, up to which the service is
	// certain to keep the grant if it is not renewed. It must be counted from before the
	// request that the service answered was sent, never from the receipt of a reply or of
	// a pushed message. It is zero if the grant does not expire (LossProcess), and only
	// then.
	Until() time.Time

	// Renew verifies that this very grant still holds the key and extends it to ttl from
	// now. It never acquires a key that is free, and never shortens the time for which the
	// service keeps the grant: a renewal that arrives late must not cut a longer one
	// short. If it returns nil, Until has moved; it may be earlier than what the service
	// keeps.
	Renew(ctx context.Context, ttl time.Duration) error

	// Release frees the key if this very grant holds it, and never that of another grant.
	// A second call after an error completes the release. It returns ErrLost if this
	// grant does not (or no longer) hold the key.
	Release(ctx context.Context) error
}

// Keeper is implemented by a Grant of a service with TTLs that can be left to expire at
// a given time, sooner or later than it would. Package lock uses it for the minimum hold of
// a lease that has ended: no holder relies on the longer time any more. Without it package
// lock calls Renew, which never shortens.
type Keeper interface {
	// Keep makes the service keep the grant, if it still holds the key, for d from now
	// and no longer.
	Keep(ctx context.Context, d time.Duration) error
}

// Downgrader is implemented by a Grant of a driver that declares [Capabilities.Shared].
type Downgrader interface {
	// Downgrade makes an exclusive grant that of a reader, in one step: nothing else holds
	// the key in between. Readers at the head of the queue are then granted. The token stays.
	// Permits in the queue wait on, as they would behind any reader. A second call after an
	// error completes the downgrade, and does nothing to a reader. Downgrade returns ErrLost if
	// this grant does not hold the key. An error that is marked by NotExecuted, or matches
	// ErrInvalid, concerns the requests of this call: package lock remembers that one of an
	// earlier call may still be executed.
	Downgrade(ctx context.Context) error
}

// SlotHolder is implemented by a Grant of a driver that declares [Capabilities.Permits].
type SlotHolder interface {
	// Slots returns which of the permits 0 to Capacity-1 this grant holds, in rising order: the
	// lowest that were free when it was made. It is empty for other grants.
	Slots() []int
}

// Request is one attempt to acquire a key.
type Request struct {
	// Key is the name of the lock: 1 to MaxName bytes of any value. The driver escapes it
	// injectively for its service.
	Key string
	// Owner identifies this attempt and no other: 32 lower-case hex digits, random.
	Owner string
	// Share is what the request asks for; the zero Share is the whole key. A driver gets no
	// share that it does not declare.
	Share Share
	// TTL is how long the service keeps the grant without a renewal. It is within the
	// declared bounds of the driver.
	TTL time.Duration
	// Metadata describes the client to those who inspect. It is at most MaxMetadata bytes
	// of valid UTF-8 without control characters.
	Metadata string

	// OnWait, if not nil, is called by a Waiter once, when the attempt found the key held
	// and begins to wait. It must not block.
	OnWait func(*LockedError)
	// OnLost, if not nil, is called when the service reports, unasked, that a grant of this
	// attempt has ended (broken, session ended). It may be called at any time after the
	// service made the grant, even before TryAcquire or Acquire has returned, from any
	// goroutine, more than once, and does not block. It is never called for a release.
	OnLost func(reason error)
}

// Waiter is implemented by a backend that has a queue of its own. Without it package lock
// polls TryAcquire with jitter.
type Waiter interface {
	// Acquire acquires req.Key. It waits in the queue of the backend until the key is
	// granted or ctx ends. An attempt that ctx ends returns ErrUncertain joined with the
	// error of the context, unless it is certain that nothing of it remains; the caller
	// then calls Abandon. Errors of the service before the attempt is in the queue are
	// returned, after as long as opening may take at the latest. Afterwards Acquire
	// survives a failing service for up to req.TTL since the first failure.
	//
	// A pushed grant may be shorter than req.TTL; package lock renews it in time.
	//
	// A waiter is dead if its process was killed, was stopped, or cannot be reached. If the
	// service itself notices that, a dead waiter delays the waiters behind it by a round
	// trip. Else all dead waiters of one process together should delay them by at most
	// MaxProvisionalTTL, those of several processes by at most that for each process. A
	// service with sessions (LossSession) may take until the sessions have ended, which is one
	// TTL for all. The harness of the suite declares it (conformance.Budget.DeadProcess).
	Acquire(ctx context.Context, req Request) (Grant, error)
}

// BatchRenewer is implemented by a backend that can renew many grants in fewer requests
// than one each. Package lock uses it when more than a few renewals are due at once, for up
// to some hundred, and a few batches may be in flight at a time.
type BatchRenewer interface {
	// RenewBatch renews grants of this backend, each as its own Renew would: the error at
	// i is what Renew of the grant at i would have returned. A grant that fails must not
	// keep the others from being renewed, unless the service fails as a whole. A grant
	// occurs at most once. All results are returned together, so it is for grants that
	// do not depend on different parts of the service.
	//
	// A backend that cannot, as it is deployed, renews none and returns
	// [errors.ErrUnsupported] for each: package lock then renews them one by one and does
	// not call RenewBatch again.
	RenewBatch(ctx context.Context, renewals []Renewal) []error
}

// Renewal is one renewal of a batch.
type Renewal struct {
	Grant Grant
	TTL   time.Duration // from now
}

// BatchAbandoner is implemented by a backend that can abandon many attempts in fewer
// requests than one each. Package lock uses it for what an outage has left, for up to some
// hundred attempts at once.
type BatchAbandoner interface {
	// AbandonBatch abandons attempts, each as Abandon would: the error at i is what Abandon
	// of the attempt at i would have returned. An attempt that fails must not keep the
	// others from being abandoned, unless the service fails as a whole. Several attempts may
	// be for one key; an attempt occurs at most once.
	//
	// A backend that cannot, as it is deployed, abandons none and returns
	// [errors.ErrUnsupported] for each: package lock then abandons them one by one and does
	// not call AbandonBatch again.
	AbandonBatch(ctx context.Context, reqs []Request) []error
}

// Inspector returns the holder and the waiters of a key.
type Inspector interface {
	Inspect(ctx context.Context, key string) (Info, error)
}

// ChangeWatcher is implemented by a backend whose service notifies clients of changes of a
// key. Without it clients call Inspect at intervals.
type ChangeWatcher interface {
	// WatchChanges calls changed as soon as it watches key, and then after each change of the
	// holder or the waiters, also if a lease expires. An Inspect that begins after a call of
	// changed returns that change or a later one. Several changes may be one call, and a call
	// may come without a change. changed does not block.
	//
	// WatchChanges returns the error of ctx when ctx has ended, and an error if it cannot
	// watch, or may have missed a change. The caller then calls it again.
	WatchChanges(ctx context.Context, key string, changed func()) error
}

// Lister lists the keys held at the moment, in no order, each at most once while nothing
// changes. It stops when yield returns false.
type Lister interface {
	List(ctx context.Context, yield func(Info) bool) error
}

// Breaker frees a key that other clients hold. The next waiter gets it, the token still
// rises, and the old holder is notified if the service can push.
type Breaker interface {
	// Break ends the grant of owner on key, or all grants of key if owner is "". It returns
	// the holder that it removed, the first of them if there were several, or nil if the key
	// was free. If owner does not hold the key and another attempt does, Break changes nothing
	// and returns a [*LockedError] with that holder. The comparison with owner and the removal
	// must be one step for the service.
	Break(ctx context.Context, key, owner string) (*Holder, error)
}

// StatusReporter is implemented by a backend that reports failures of a part of the service
// while requests succeed. Package lock logs them.
type StatusReporter interface {
	// ReportStatus sets the function that is called once when such a part begins to fail,
	// with the error, and once with nil when it serves again. Reports that came before are
	// made now.
	ReportStatus(report func(what string, err error))
}

// Pinger makes one cheap round trip to the service.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Contender is a holder or a waiter.
type Contender struct {
	// Owner is the owner id of the attempt, or what identifies a foreign holder.
	Owner string `json:"owner"`
	// Metadata is Request.Metadata of the attempt, "" if unknown.
	Metadata string `json:"metadata,omitempty"`
	// Share is Request.Share of the attempt, the share of a reader after a downgrade.
	Share Share `json:"share,omitzero"`
	// Age is for how long the contender has held or waited, by the clock of the service;
	// zero if the service does not know. If the holder itself has written it (package record), it has held
	// for at least that.
	Age time.Duration `json:"age_ns,omitempty"`
}

// Holder is the contender that holds a key.
type Holder struct {
	Contender
	// Token is the holder's fencing token, zero if it has none.
	Token uint64 `json:"token,omitempty"`
	// Slots are the permits that the holder has, see SlotHolder.
	Slots []int `json:"slots,omitempty"`
	// Left is how long the service keeps the grant unless it is renewed, at the time
	// of the answer. Zero if it does not expire.
	Left time.Duration `json:"left_ns,omitempty"`
	// Foreign is set if the key was not acquired by this library.
	Foreign bool `json:"foreign,omitempty"`
}

// Info is the state of a key at one moment.
type Info struct {
	Name string `json:"name"`
	// Holder is nil if the key is free. Of several holders it is the one with the lowest token.
	Holder *Holder `json:"holder"`
	// Others are the other holders of a key that is shared, in the order of their tokens.
	Others []Holder `json:"others,omitempty"`
	// Waiters are in the order in which they will be served, if that is known.
	Waiters []Contender `json:"waiters,omitempty"`
}
