package backend

import "time"

// Bounds of a retention: after which time without use a driver removes what a name leaves
// behind. Each driver that has something to remove takes it as the option WithRetention and
// the URL parameter "retention".
const (
	DefaultRetention = 24 * time.Hour
	MinRetention     = time.Minute
)

// CheckRetention returns ErrInvalid unless d is 0, which disables the removal, or at least
// MinRetention.
func CheckRetention(d time.Duration) error {
	if d != 0 && d < MinRetention {
		return Invalid("retention", d, "1m or more, or 0 to remove nothing")
	}
	return nil
}
