package backend

import (
	"errors"
	"fmt"
	"time"
)

// The sentinels that drivers return, wrapped or not. Package lock exports the
// same values, so errors.Is works across both.
var (
	// ErrLocked: somebody else holds the lock.
	ErrLocked = errors.New("locked")
	// ErrLost: the lock is no longer held, by the word of the service or because it
	// can no longer be proven in time.
	ErrLost = errors.New("lock lost")
	// ErrUncertain: the request may have been executed.
	ErrUncertain = errors.New("outcome unknown")
	// ErrInvalid: the request can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("client closed")
)

// LockedError is ErrLocked with what is known of the holder.
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

// Invalid returns an ErrInvalid that names the field, its value and what is
// accepted. The value must not be a secret.
func Invalid(field string, value any, accepted string) error {
	if s, ok := value.(string); ok {
		return fmt.Errorf("%w %s %.100q: want %s", ErrInvalid, field, s, accepted)
	}
	return fmt.Errorf("%w %s %v: want %s", ErrInvalid, field, value, accepted)
}

// Uncertain marks err as ErrUncertain.
func Uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }
