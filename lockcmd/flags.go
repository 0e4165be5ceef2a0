package lockcmd

import (
	"context"
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

// serviceLimit is the flag --timeout of a command that asks the service a few times: how long
// it waits for the service in all. The zero value is no limit.
type serviceLimit struct {
	limit positive
	spent time.Duration
}

func (l *serviceLimit) addFlag(flags *FlagSet) {
	flags.Var(&l.limit, "timeout", "how long to wait for the service (default no limit but that of the driver)")
}

// within calls f with a context that ends when the limit is spent. The error then names the flag.
func (l *serviceLimit) within(ctx context.Context, f func(context.Context) error) error {
	if l.limit == 0 {
		return f(ctx)
	}
	began := time.Now()
	limit := time.Duration(l.limit)
	bounded, cancel := context.WithDeadline(ctx, began.Add(limit-l.spent))
	defer cancel()
	err := f(bounded)
	l.spent += time.Since(began)
	if errors.Is(err, context.DeadlineExceeded) && bounded.Err() != nil {
		return Unavailable(fmt.Errorf("no answer within --timeout %v: %s", limit, errorText(err)))
	}
	return err
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
