package lock

import (
	"errors"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// The sentinels, to be tested with errors.Is. An operation that a backend does
// not offer returns an error that matches errors.ErrUnsupported.
var (
	// ErrLocked: somebody else holds the lock. errors.As with [*LockedError] tells who.
	ErrLocked = backend.ErrLocked
	// ErrLost: the lease is over though nobody unlocked it: it could not be renewed
	// in time, or the backend says that it is not ours any more. Somebody else may
	// hold the lock from now on.
	ErrLost = backend.ErrLost
	// ErrReleased: the lease is over because it was unlocked.
	ErrReleased = errors.New("lock released")
	// ErrClosed: the client is closed.
	ErrClosed = backend.ErrClosed
	// ErrInvalid: a name, duration, URL or option that can never work. The error says
	// which, its value and what is accepted.
	ErrInvalid = backend.ErrInvalid
	// ErrUncertain: the backend may or may not have executed the request.
	ErrUncertain = backend.ErrUncertain
)

// LockedError is an ErrLocked that knows the holder.
type LockedError = backend.LockedError

// Error says which operation failed, on what, and why.
type Error struct {
	Op      string // "lock", "try", "unlock", "renew", "check", "extend", "open", ...
	Backend string // the driver's name
	Name    string // the lock's name, "" if the operation concerns none
	Err     error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("lock: ")
	b.WriteString(e.Op)
	if e.Name != "" {
		b.WriteString(" " + shorten(e.Name))
	}
	if e.Backend != "" {
		b.WriteString(" on " + e.Backend)
	}
	b.WriteString(": " + e.Err.Error())
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// shorten quotes a name and cuts it to what fits a log line.
func shorten(name string) string {
	const most = 80
	if len(name) > most {
		return strconv.Quote(name[:most]) + "..."
	}
	return strconv.Quote(name)
}
