package backend

import "time"

// Bounds of a retention: after which time without use a driver removes what a name leaves
// behind. Each driver that has something to remove takes it as the option WithRetention, which
// calls [CheckRetention], and as the URL parameter "retention", see [Params.Retention].
const (
	DefaultRetention = 24 * time.Hour
	MinRetention     = time.Minute
)

const acceptedRetention = "1m or more, or 0 to remove nothing"

// CheckRetention returns ErrInvalid unless d is 0, which disables the removal, or at least
// MinRetention.
func CheckRetention(d time.Duration) error {
	if d != 0 && d < MinRetention {
		return Invalid("retention", d, acceptedRetention)
	}
	return nil
}

// Retention reads the parameter "retention": 0, or MinRetention or more. It is DefaultRetention if
// it is absent.
func (p *Params) Retention() time.Duration {
	return read(p, "retention", acceptedRetention, DefaultRetention, func(v string) (time.Duration, bool) {
		d, err := time.ParseDuration(v)
		return d, err == nil && CheckRetention(d) == nil
	})
}
