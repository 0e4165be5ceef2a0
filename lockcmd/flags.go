package lockcmd

import (
	"errors"
	"fmt"
	"time"
)

// positive is a flag for a duration above zero; zero means that it was not given.
type positive time.Duration

func (d *positive) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}
func (*positive) Type() string { return "duration" }
func (d *positive) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v <= 0 {
		return errors.New("want a positive duration such as 500ms, 30s or 1h")
	}
	*d = positive(v)
	return nil
}

// optional is a flag for a duration of zero or more.
type optional struct {
	d     time.Duration
	given bool
}

func (o *optional) String() string {
	if !o.given {
		return ""
	}
	return o.d.String()
}
func (*optional) Type() string { return "duration" }
func (o *optional) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < 0 {
		return errors.New("want 0 or a positive duration such as 500ms, 30s or 1h")
	}
	*o = optional{v, true}
	return nil
}

// waitLimit is the flag --wait. Without a limit the wait does not end.
type waitLimit struct{ optional }

func (w *waitLimit) String() string {
	if !w.given {
		return "forever"
	}
	return w.optional.String()
}
func (w *waitLimit) Set(s string) error {
	if s == "forever" {
		w.optional = optional{}
		return nil
	}
	if w.optional.Set(s) != nil {
		return errors.New("want forever, 0 for one attempt, or a positive duration such as 500ms, 30s or 1h")
	}
	return nil
}

// interval is a flag for the time between two requests of watch and top. The lower
// bound limits the load of the service.
type interval time.Duration

const (
	minInterval  = 100 * time.Millisecond
	maxInterval  = time.Hour
	intervalHelp = "100ms to 1h"
)

func (d *interval) String() string { return time.Duration(*d).String() }
func (*interval) Type() string     { return "duration" }
func (d *interval) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < minInterval || v > maxInterval {
		return fmt.Errorf("want a duration from %s", intervalHelp)
	}
	*d = interval(v)
	return nil
}
