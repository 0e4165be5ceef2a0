package lock

import (
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/engine"
	"github.com/interlock-go/lock/internal/retry"
)

// The sentinels, for errors.Is. An operation that a backend does not offer returns an
// error that matches errors.ErrUnsupported.
var (
	// ErrLocked: another client holds the lock. errors.As with [*LockedError] returns the
	// holder.
	ErrLocked = backend.ErrLocked
	// ErrLost: the lease has ended without Unlock: it could not be renewed in time, or the
	// backend says that it is not held any more. Another client may hold the lock from now
	// on.
	ErrLost = backend.ErrLost
	// ErrReleased: the lease has ended because it was unlocked.
	ErrReleased = engine.ErrReleased
	// ErrClosed: the client is closed.
	ErrClosed = backend.ErrClosed
	// ErrInvalid: a name, duration, URL or option that can never work. The error contains
	// its name, its value and what is accepted.
	ErrInvalid = backend.ErrInvalid
	// ErrWaitLimit: the lock was not granted within the time of WithWait. The error also
	// matches ErrLocked if another client held the lock, and not context.DeadlineExceeded,
	// because no deadline of the caller has passed.
	ErrWaitLimit = retry.ErrWaitLimit
	// ErrUncertain: the backend may or may not have executed the request.
	ErrUncertain = backend.ErrUncertain
)

// LockedError is an ErrLocked with the holder.
type LockedError = backend.LockedError

// Error is the error of an operation on a lock.
type Error struct {
	Op      string // "lock", "try", "unlock", "renew", "check", "extend", "open", ...
	Backend string // the name of the driver
	Name    string // of the lock, "" if the operation concerns none
	Err     error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("lock")
	if e.Op != "lock" && e.Op != "try" {
		b.WriteString(": " + e.Op)
	}
	if e.Name != "" {
		b.WriteString(" " + shorten(e.Name))
	}
	if e.Backend != "" {
		b.WriteString(" on " + e.Backend)
	}
	b.WriteString(": " + e.Err.Error())
	return strings.ReplaceAll(b.String(), "\n", " ") // a server's message may have several lines
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// opError adds the operation and the name of a combined lock to err.
func opError(op, name string, err error) error { return &Error{Op: op, Name: name, Err: err} }

// shorten quotes a name and cuts it to what fits a log line.
func shorten(name string) string {
	const most = 80
	if len(name) > most {
		return strconv.Quote(name[:most]) + "..."
	}
	return strconv.Quote(name)
}
