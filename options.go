package lock

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/interlock-go/lock/backend"
)

// DefaultTTL is the TTL of a lease if none is set.
const DefaultTTL = 30 * time.Second

// minTTL is the least TTL on any backend: a shorter lease would be all margin.
const minTTL = 50 * time.Millisecond

// Option configures a Client.
type Option interface{ applyClient(*clientConfig) }

// MutexOption configures a Mutex. Given to Open or New it is the default for all
// mutexes of the client.
type MutexOption interface {
	Option
	applyMutex(*mutexConfig)
}

type clientConfig struct {
	mutex     mutexConfig
	require   []backend.Requirement
	log       *slog.Logger // that of WithLogger
	logGiven  bool         // WithLogger was given
	observers []*Observer
	handOff   bool
	lazy      bool

	releaseForgotten bool
	place            bool
}

type mutexConfig struct {
	ttl       time.Duration
	noRenewal bool
	metadata  string
	minHold   time.Duration
	wait      time.Duration
	reentry   bool
}

// DoOption configures one call of Do.
type DoOption interface{ applyDo(*doConfig) }

// WaitOption is the option of WithWait: of a client, of a mutex and of one call of Do.
type WaitOption interface {
	MutexOption
	DoOption
}

type clientOption func(*clientConfig)

func (o clientOption) applyClient(c *clientConfig) { o(c) }

type mutexOption func(*mutexConfig)

func (o mutexOption) applyClient(c *clientConfig) { o(&c.mutex) }
func (o mutexOption) applyMutex(c *mutexConfig)   { o(c) }

// WithTTL sets how long the backend keeps the lock without a renewal: the time after which
// the lock of a crashed holder is free, and the longest outage that a holder survives. A lock
// that was granted by push (Redis, PostgreSQL, MySQL) survives at most 3 s until its first
// renewal, 20 ms and a round trip after the grant. The default is DefaultTTL. The backend
// declares the least and the greatest value.
func WithTTL(d time.Duration) MutexOption {
	return mutexOption(func(c *mutexConfig) { c.ttl = d })
}

// WithWait sets the wait limit: Lock waits for the lock for at most d, and work under the lock
// may take longer. After d Lock returns an error that matches ErrWaitLimit, as it does when its
// context ends: at most a quarter of a second later, with nothing left on the backend. The
// default, zero, is no limit but the context of Lock. TryLock does not wait and has no limit.
//
// As an option of Do it bounds the whole of m.Lock, also that of a lock of All, whose parts have
// a wait limit each otherwise. If the mutex has a wait limit too, the shorter one counts.
func WithWait(d time.Duration) WaitOption { return waitOption(d) }

type waitOption time.Duration

func (o waitOption) applyClient(c *clientConfig) { o.applyMutex(&c.mutex) }
func (o waitOption) applyMutex(c *mutexConfig)   { c.wait = time.Duration(o) }
func (o waitOption) applyDo(c *doConfig)         { c.wait = time.Duration(o) }

// WithoutRenewal makes leases fixed: a lease ends when its TTL has passed, unless
// Lease.Extend is called. By default a lease is renewed until it is unlocked.
func WithoutRenewal() MutexOption {
	return mutexOption(func(c *mutexConfig) { c.noRenewal = true })
}

// WithMetadata sets a text that other clients see of the holder and of waiters: at most
// backend.MaxMetadata bytes of printable UTF-8. The default is "pid N on HOST".
func WithMetadata(s string) MutexOption {
	return mutexOption(func(c *mutexConfig) { c.metadata = s })
}

// WithMinHold keeps the lock for at least d after it was granted. An earlier Unlock ends
// the lease at once, but other clients get the lock only when d has passed. So a scheduled
// job that finishes early does not run again on a node whose clock is late. If the client
// is closed before that, Redis, PostgreSQL, MySQL, NATS, Memcached, S3 and memory still keep the lock for the rest
// of d; etcd, ZooKeeper and files free it.
func WithMinHold(d time.Duration) MutexOption {
	return mutexOption(func(c *mutexConfig) { c.minHold = d })
}

// WithReentry lets code that runs under a lease's context lock the same name again. Lock(ctx)
// with a ctx derived from [Lease.Context] returns at once with a nested lease of the same
// grant and token. The lock is freed when all of them have been unlocked. The nested lease
// excludes no code that has such a context, such as other goroutines of the holder. The TTL
// and the minimum hold stay those of the first lease. Without WithReentry such a call, which
// would wait for itself, fails with ErrLocked.
func WithReentry() MutexOption {
	return mutexOption(func(c *mutexConfig) { c.reentry = true })
}

// WithLocalHandOff lets goroutines that wait for the same key in this client share one
// attempt at the backend and pass its grant on among themselves, without a round trip. It is
// for keys that many goroutines of few processes contend for. It changes this:
//
//   - A grant is passed on at most 15 times, and only while it is younger than 10 ms. Other
//     processes wait at most that long, beside the last lease. Within a process the order is
//     that of arrival. Each process has one place in the queue of the backend, so the order
//     over all processes is no longer that of arrival.
//   - Fencing tokens are those of the backend times 256, plus the number of the lease since
//     the grant. They may be greater than 2^53, which some number types cannot represent.
//     All clients of a name must use local hand-off, or none: it makes tokens greater, and
//     a resource then refuses clients without it. To stop using it, delete what resources
//     remember.
//   - A guard that a driver puts into a transaction guards the grant of the backend, and not
//     each lease of it. [Lease.BackendHold] identifies that grant.
//   - Other clients see the process that holds the key, but not which of its leases. They
//     see one waiter for all waiters of this client.
//   - A lease that is passed on has what is left of the backend's lease: for a fixed lease
//     (WithoutRenewal) up to 10 ms less than its TTL, or the whole TTL after a renewal.
//   - A lock that is broken may be passed on once more, within those 10 ms, before its
//     holder is notified.
//
// Leases with different TTLs or metadata do not share a grant. The backend must have a queue
// (it implements backend.Waiter), as all of this project have. Otherwise Open and New fail
// with an error that matches errors.ErrUnsupported.
func WithLocalHandOff() Option {
	return clientOption(func(c *clientConfig) { c.handOff = true })
}

// WithLazyOpen makes Open return before the service has answered. Open fails at once for errors
// of the URL and of options; a service that is absent does not make it fail. The client opens the
// backend in the background and repeats that, with pauses of up to 500 ms (5 s after an error
// that repeating should not change), until the service answers or the client is closed.
//
// Before the backend is open:
//
//   - Lock waits until its context or its wait limit (WithWait) ends; its error then has the last
//     one of opening. An error that repeating should not change is returned at once.
//   - TryLock, Ping, Inspect, List and Break return the last error of opening.
//   - Client.Capabilities has only the name of the driver. Options that depend on the service, such
//     as a TTL below its minimum and WithRequire, are checked when the backend is open: until
//     they are met, nothing is granted.
//   - The first failure, and that the backend is open then, are logged at level Warn.
//
// It has no effect on New, whose backend is open.
func WithLazyOpen() Option {
	return clientOption(func(c *clientConfig) { c.lazy = true })
}

// WithRequire makes Open and New fail unless the backend declares all requirements, such as
// backend.RequireFIFO or backend.RequireFencingRestart.
func WithRequire(r ...backend.Requirement) Option {
	return clientOption(func(c *clientConfig) { c.require = append(c.require, r...) })
}

// WithLogger sets the logger for lost and forgotten leases and for failures that the client handles by itself.
// Without WithLogger the lines at level Warn go to slog.Default(), as it is then. WithLogger(nil)
// turns logging off.
//
// An outage takes a few lines at level Warn, however many leases it concerns: one when renewals
// have failed for a second, with the number of leases, one when none fails any more, with the
// number of leases that were lost, and one for each of the first three of these. Each lease that
// is lost otherwise takes one line. A cleanup that was given up, and a wait without a limit that
// has lasted a minute, are logged at Warn at most every 10 s. All else is logged at Debug, each failed renewal too, and not to slog.Default().
//
// A line may be written in a goroutine that asks a lease or its context for Err. So a handler
// must not ask a context for Err while it holds a lock of its own.
func WithLogger(l *slog.Logger) Option {
	return clientOption(func(c *clientConfig) { c.log, c.logGiven = l, true })
}

// WithObserver reports events to o, after the observers of earlier options.
func WithObserver(o *Observer) Option {
	return clientOption(func(c *clientConfig) {
		if o != nil {
			c.observers = append(c.observers, o)
		}
	})
}

// WithReleaseForgotten releases a lease that the program has forgotten, after it was reported
// ([Observer.Forgotten]). Without it such a lease is renewed until the client is closed. Do not use
// it in a program that holds a lock until it exits and keeps no reference to the lease.
func WithReleaseForgotten() Option {
	return clientOption(func(c *clientConfig) { c.releaseForgotten = true })
}

// WithPlace records where the program called Lock or TryLock, for the report of a forgotten lease.
// It is for finding a missing Unlock, and costs about a microsecond for each lease.
func WithPlace() Option {
	return clientOption(func(c *clientConfig) { c.place = true })
}

func defaultMutexConfig() mutexConfig {
	host, err := os.Hostname()
	if err != nil || !printable(host) || len(host) > 200 {
		host = "unknown host"
	}
	return mutexConfig{ttl: DefaultTTL, metadata: fmt.Sprintf("pid %d on %s", os.Getpid(), host)}
}

// validate returns an error that names a value which the backend cannot accept.
func (c *mutexConfig) validate(caps backend.Capabilities) error {
	if err := validTTL("ttl", c.ttl, caps); err != nil {
		return err
	}
	if c.minHold < 0 {
		return backend.Invalid("min hold", c.minHold, "zero or a positive duration")
	}
	if err := validWait(c.wait); err != nil {
		return err
	}
	if c.noRenewal && c.minHold > c.ttl {
		return backend.Invalid("min hold", c.minHold, fmt.Sprintf("at most the TTL, %v, of a lease without renewal", c.ttl))
	}
	if len(c.metadata) > backend.MaxMetadata {
		return backend.Invalid("metadata", fmt.Sprintf("of %d bytes", len(c.metadata)), fmt.Sprintf("at most %d bytes", backend.MaxMetadata))
	}
	if !printable(c.metadata) {
		return backend.Invalid("metadata", c.metadata, "UTF-8 without control characters")
	}
	return nil
}

func validTTL(field string, d time.Duration, caps backend.Capabilities) error {
	least, most := max(caps.MinTTL, minTTL), maxTTL(caps)
	if d < least || d > most {
		return backend.Invalid(field, d, fmt.Sprintf("from %v to %v on %s", least, most, caps.Name))
	}
	return nil
}

// maxTTL returns the longest TTL on a backend.
func maxTTL(caps backend.Capabilities) time.Duration {
	return min(cmp.Or(caps.MaxTTL, backend.MaxTTL), backend.MaxTTL)
}

func validWait(d time.Duration) error {
	if d < 0 {
		return backend.Invalid("wait", d, "zero or a positive duration")
	}
	return nil
}

func validName(name string, caps backend.Capabilities) error {
	most := backend.MaxName
	if caps.MaxName > 0 {
		most = min(most, caps.MaxName)
	}
	if name == "" {
		return backend.Invalid("name", name, fmt.Sprintf("1 to %d bytes", most))
	}
	if len(name) > most {
		return backend.Invalid("name", fmt.Sprintf("of %d bytes", len(name)), fmt.Sprintf("1 to %d bytes on %s", most, caps.Name))
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
