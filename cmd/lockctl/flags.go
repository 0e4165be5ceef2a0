package main

import (
	"errors"
	"fmt"
	"time"
)

// positive is a flag that takes a duration above zero; zero stands for "not given".
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

// optional is a flag that takes zero or a longer duration, and knows whether it was given.
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

// waitFor is the flag --wait: a bound, or none.
type waitFor struct{ optional }

func (w *waitFor) String() string {
	if !w.given {
		return "forever"
	}
	return w.optional.String()
}
func (w *waitFor) Set(s string) error {
	if s == "forever" {
		w.optional = optional{}
		return nil
	}
	if w.optional.Set(s) != nil {
		return errors.New("want forever, 0 for one attempt, or a positive duration such as 500ms, 30s or 1h")
	}
	return nil
}

// interval is a flag for how often a service is asked.
type interval time.Duration

// Its bounds: no service should be asked more often by somebody who looks on, and
// more seldom is a mistake.
const (
	leastInterval = 100 * time.Millisecond
	mostInterval  = time.Hour
	intervalHelp  = "100ms to 1h"
)

func (d *interval) String() string { return time.Duration(*d).String() }
func (*interval) Type() string     { return "duration" }
func (d *interval) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || v < leastInterval || v > mostInterval {
		return fmt.Errorf("want a duration from %s", intervalHelp)
	}
	*d = interval(v)
	return nil
}
