package lock

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/interlock-go/lock/backend"
)

// DefaultTTL is the lease's TTL where none is set.
const DefaultTTL = 30 * time.Second

// minTTL is the least TTL on any backend: below it the margin leaves no lease.
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
	log       *slog.Logger
	observers []*Observer
	handOff   bool
}

type mutexConfig struct {
	ttl       time.Duration
	noRenewal bool
	metadata  string
	minHold   time.Duration
	reentry   bool
}

type clientOption func(*clientConfig)

func (o clientOption) applyClient(c *clientConfig) { o(c) }

type mutexOption func(*mutexConfig)

func (o mutexOption) applyClient(c *clientConfig) { o(&c.mutex) }
func (o mutexOption) applyMutex(c *mutexConfig)   { o(c) }

// WithTTL sets how long the backend keeps the lock without a renewal: the time
// after which a crashed holder's lock is free, and the longest outage a holder
// survives. The default is DefaultTTL; the backend declares the least and most.
func WithTTL(d time.Duration) MutexOption {
	return mutexOption(func(c *mutexConfig) { c.ttl = d })
}

// WithoutRenewal makes leases fixed: they end when their TTL has passed unless
// Lease.Extend is called. By default a lease is renewed until it is unlocked.
func WithoutRenewal() MutexOption {
	return mutexOption(func(c *mutexConfig) { c.noRenewal = true })
}

// WithMetadata sets what others see of the holder and of waiters: at most
// backend.MaxMetadata bytes of printable UTF-8. The default is "pid N on HOST".
func WithMetadata(s string) MutexOption {
	return mutexOption(func(c *mutexConfig) { c.metadata = s })
}

// WithMinHold keeps the lock for at least d after it was granted: an earlier
// Unlock ends the lease at once for its holder, but others get the lock only when
// d has passed. It stops a scheduled job that finishes early from running again on
// a node whose clock is late. If the client is closed before that, a backend with
// TTLs keeps the lock for the rest of d all the same; with others it is freed.
func WithMinHold(d time.Duration) MutexOption {
	return mutexOption(func(c *mutexConfig) { c.minHold = d })
}

// WithReentry lets code that runs under a lease's context lock the same name
// again: Lock(ctx) with a ctx derived from [Lease.Context] returns at once with a
// lease of the same hold and token, and the lock is freed when every one of them
// has been unlocked. It excludes nobody who has such a context, goroutines of one
// holder among them, and the TTL and minimum hold stay those of the first. Without it such a call, which would wait for itself, fails
// with ErrLocked.
func WithReentry() MutexOption {
	return mutexOption(func(c *mutexConfig) { c.reentry = true })
}

// WithLocalHandOff lets goroutines that wait for the same key in this client share one
// attempt at the backend and pass a grant on among themselves, without a round trip:
// for keys that many goroutines of few processes contend for. What it changes:
//
//   - A grant is passed on at most 15 times, and not when it is older than 10 ms. Other
//     processes wait for that long at most, beside the last hold. Within a process the
//     order is that of arrival; among processes each stands in the backend's queue once,
//     so that the order over all is no longer that of arrival.
//   - Fencing tokens are those of the backend times 256, plus the number of the hold
//     since the grant; they may be greater than 2^53, which not every number type can
//     tell apart. Every client that takes the same names must use it, or none: with it
//     tokens begin to be greater, and a resource refuses those of clients without it.
//     To give it up again, forget what resources remember.
//   - A guard that a driver puts into a transaction guards what the backend knows, a
//     grant, and not each hold of it. [Lease.BackendHold] tells what the backend knows.
//   - Others see the process that holds the key, but not which of its holds; who waits
//     in this client is seen as one waiter.
//   - Passing on gives what is left of the backend's lease: for a fixed lease
//     (WithoutRenewal) up to 10 ms less than its TTL, or after a renewal the whole.
//   - A lock that is broken may be passed on once more, within those 10 ms, before its
//     holder is told.
//
// Leases with different TTLs or metadata share no grant. The backend must have a
// queue (it implements backend.Waiter), as all of this project's have; otherwise Open
// and New fail with errors.ErrUnsupported.
func WithLocalHandOff() Option {
	return clientOption(func(c *clientConfig) { c.handOff = true })
}

// WithRequire makes Open and New fail unless the backend declares all of what a
// deployment needs, such as backend.RequireFIFO or backend.RequireFencingRestart.
func WithRequire(r ...backend.Requirement) Option {
	return clientOption(func(c *clientConfig) { c.require = append(c.require, r...) })
}

// WithLogger logs lost leases and failures that the client deals with by itself:
// losses and unfinished cleaning up at Warn, failed renewals at Info, the rest at
// Debug. By default nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return clientOption(func(c *clientConfig) { c.log = l })
}

// WithObserver reports events to o, after the observers that were given before.
func WithObserver(o *Observer) Option {
	return clientOption(func(c *clientConfig) {
		if o != nil {
			c.observers = append(c.observers, o)
		}
	})
}

func defaultMutexConfig() mutexConfig {
	host, err := os.Hostname()
	if err != nil || !printable(host) || len(host) > 200 {
		host = "unknown host"
	}
	return mutexConfig{ttl: DefaultTTL, metadata: fmt.Sprintf("pid %d on %s", os.Getpid(), host)}
}

// validate refuses by name what the backend could not honour.
func (c *mutexConfig) validate(caps backend.Capabilities) error {
	if err := validTTL("ttl", c.ttl, caps); err != nil {
		return err
	}
	if c.minHold < 0 {
		return backend.Invalid("min hold", c.minHold, "zero or a positive duration")
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
	least := max(caps.MinTTL, minTTL)
	switch {
	case d < least && caps.MaxTTL > 0:
		return backend.Invalid(field, d, fmt.Sprintf("from %v to %v on %s", least, caps.MaxTTL, caps.Name))
	case d < least:
		return backend.Invalid(field, d, fmt.Sprintf("at least %v on %s", least, caps.Name))
	case caps.MaxTTL > 0 && d > caps.MaxTTL:
		return backend.Invalid(field, d, fmt.Sprintf("at most %v on %s", caps.MaxTTL, caps.Name))
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
