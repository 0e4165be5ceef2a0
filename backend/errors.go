package backend

import (
	"errors"
	"fmt"
	"time"
)

// The sentinels that drivers return, wrapped or not. Package lock exports the
// same values, so errors.Is works across both.
var (
	// ErrLocked: another client holds the lock.
	ErrLocked = errors.New("locked")
	// ErrLost: the lock is no longer held: the service says so, or the lease was not
	// renewed in time.
	ErrLost = errors.New("lock lost")
	// ErrUncertain: the request may have been executed.
	ErrUncertain = errors.New("outcome unknown")
	// ErrInvalid: the request can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("client closed")
)

// LockedError is ErrLocked with the holder, as far as it is known. TryAcquire returns the
// holder's metadata if it returns the owner id.
type LockedError struct {
	Holder Holder
}

func (e *LockedError) Error() string {
	s := "locked"
	switch {
	case e.Holder.Metadata != "":
		s += fmt.Sprintf(" by %q", e.Holder.Metadata)
	case e.Holder.Foreign:
		s += fmt.Sprintf(" by a foreign owner %.40q", e.Holder.Owner)
	case e.Holder.Owner != "":
		s += " by " + e.Holder.Owner
	}
	if e.Holder.Token != 0 {
		s += fmt.Sprintf(", token %d", e.Holder.Token)
	}
	if e.Holder.Left > 0 {
		s += fmt.Sprintf(", %v left", e.Holder.Left.Round(time.Millisecond))
	}
	return s
}

// Is makes a LockedError match ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Invalid returns an ErrInvalid with the name of a field, its value and what is accepted.
// The value must not be a secret.
func Invalid(field string, value any, accepted string) error {
	if s, ok := value.(string); ok {
		return fmt.Errorf("%w %s %.100q: want %s", ErrInvalid, field, s, accepted)
	}
	return fmt.Errorf("%w %s %v: want %s", ErrInvalid, field, value, accepted)
}

// Uncertain marks err as ErrUncertain, unless it is marked.
func Uncertain(err error) error {
	if errors.Is(err, ErrUncertain) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// NotExecuted marks err as that of a request that the service certainly did not
// execute and never will: it was not sent, or the service refused it. The text of the
// error stays the same. NotExecuted returns nil for nil.
func NotExecuted(err error) error {
	if err == nil {
		return nil
	}
	return notExecuted{err}
}

type notExecuted struct{ error }

func (e notExecuted) Unwrap() error { return e.error }

// OutcomeUnknown reports whether the request that failed with err may have been
// executed, or may be executed later. It is true for ErrUncertain and for each error
// that a driver has not classified. It is false for an error that is marked by
// NotExecuted, and for ErrLocked, ErrLost, ErrInvalid, ErrClosed and
// errors.ErrUnsupported.
func OutcomeUnknown(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, ErrUncertain) {
		return true
	}
	var certain notExecuted
	if errors.As(err, &certain) {
		return false
	}
	for _, known := range []error{ErrLocked, ErrLost, ErrInvalid, ErrClosed, errors.ErrUnsupported} {
		if errors.Is(err, known) {
			return false
		}
	}
	return true
}
