package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// requestTimeout bounds each request of watch and top.
const requestTimeout = 3 * time.Second

type watchFlags struct {
	interval  interval
	count     int
	untilFree bool
	timeout   positive
}

func (a *App) watchCommand() *Command {
	f := watchFlags{interval: interval(time.Second)}
	flags := NewFlagSet()
	flags.Var(&f.interval, "interval", "time between two requests, "+intervalHelp)
	flags.IntVar(&f.count, "count", 0, "exit after so many lines (default no limit)")
	flags.BoolVar(&f.untilFree, "until-free", false, "exit when none of the locks has a holder")
	flags.Var(&f.timeout, "timeout", "exit after this time (default no limit)")
	return &Command{
		Use:   "watch NAME...",
		Short: "Show each change of a lock: its holder and its waiters",
		Long: `Show the state of each lock, and then each change on a line of its own, until a
signal, --count, --until-free or --timeout ends it:

  held by ...           the lock has a holder, or another holder
  held no more by ...   one of several readers or holders of permits has left
  free ...              the lock has no holder; it may have been unlocked, broken or
                        may have expired
  waits: ...            a client has joined the queue, if the service has one
  waits no more: ...    a client has left the queue and is not the holder
  no answer: ...        the service did not answer; shown once, until it answers

watch inspects one name after the other, in each interval, and waits for each answer for
3 s at most. A change is shown an interval and these requests late at most; a holder
between two requests is not seen. etcd and ZooKeeper notify watch of changes, which are
then shown at once, up to ten times in an interval. In ZooKeeper each request writes to
the lock's node.

With -o json each line is an object with the event (held, left, free, waits, gone, unseen), the
local time, the name, and the holder, the holder before or the waiter as "inspect"
shows it.

With --until-free watch ends when it has seen each of the locks free, in one round of
requests. Another client may hold one by then: to do something under the lock, use "run".

The exit code is 0, or 1 if --timeout came before --count lines or --until-free.`,
		Example: `  lockctl watch nightly
  lockctl watch orders/42 orders/43 --interval 200ms
  lockctl watch nightly --until-free --timeout 1h >/dev/null && echo it has ended
  lockctl watch nightly --count 2 --timeout 1m >/dev/null && echo it changed
  lockctl watch -o json nightly | jq -r 'select(.event == "held").holder.metadata'`,
		Args: func(c *Command, args Args) error {
			if len(args.List) == 0 {
				return Usagef("no arguments for %s: want one NAME or more", c.Name())
			}
			return nil
		},
		Flags:    flags,
		Complete: a.completeNames,
		Run: func(ctx context.Context, args []string) error {
			if f.count < 1 && flags.changed("count") {
				return Usagef("invalid --count %d: want 1 or more", f.count)
			}
			return a.withClient(ctx, &serviceLimit{}, func(ctx context.Context, c *lock.Client) error { return a.watch(ctx, c, &f, args) })
		},
	}
}

// errDone ends a repeat whose result is complete.
var errDone = errors.New("done")

func (a *App) watch(ctx context.Context, c *lock.Client, f *watchFlags, names []string) error {
	lines := 0
	w := watcher{names: names, interval: time.Duration(f.interval), untilFree: f.untilFree, inspect: c.Inspect, watch: c.WatchChanges, report: func(c change) error {
		if err := a.line(c, c.String()); err != nil {
			return err
		}
		if lines++; lines == f.count {
			return errDone
		}
		return nil
	}}
	watching := ctx
	if f.timeout > 0 {
		var cancel context.CancelFunc
		watching, cancel = context.WithTimeout(ctx, time.Duration(f.timeout))
		defer cancel()
	}
	switch err := w.run(watching); {
	case errors.Is(err, errDone):
		return nil
	case err != nil || f.count == 0 && !f.untilFree: // else a signal or the timeout is the usual end
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	if f.count == 0 {
		return WithCode(ExitFailed, fmt.Errorf("not free within %v", time.Duration(f.timeout)))
	}
	return WithCode(ExitFailed, fmt.Errorf("%d of %d lines within %v", lines, f.count, time.Duration(f.timeout)))
}

// watcher inspects locks repeatedly and reports their changes.
type watcher struct {
	names     []string
	interval  time.Duration
	untilFree bool // run ends with errDone when no lock has a holder
	inspect   func(ctx context.Context, name string) (lock.Info, error)
	watch     func(ctx context.Context, name string, changed func()) error // nil, or fails: run polls only
	report    func(change) error                                           // an error ends run

	states map[string]*watchedLock
}

// watchedLock is the state of a lock at the last request.
type watchedLock struct {
	last    *lock.Info // nil before the first answer
	failing bool
}

// run returns nil when ctx has ended, and an error that no retry can repair.
func (w *watcher) run(ctx context.Context) error {
	w.states = map[string]*watchedLock{}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	changed := make(chan struct{}, 1)
	for _, name := range w.names {
		w.states[name] = &watchedLock{}
		if w.watch == nil {
			continue
		}
		watching.Go(func() {
			_ = w.watch(ctx, name, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		})
	}
	return repeat(ctx, w.interval, changed, func() error {
		for _, name := range w.names {
			if err := w.check(ctx, name); err != nil || ctx.Err() != nil {
				return err
			}
		}
		if w.untilFree && w.free() {
			return errDone
		}
		return nil
	})
}

// free reports whether the last request for each lock has found it free.
func (w *watcher) free() bool {
	for _, s := range w.states {
		if s.last == nil || s.failing || s.last.Holder != nil {
			return false
		}
	}
	return true
}

// check inspects a lock and reports what has changed.
func (w *watcher) check(ctx context.Context, name string) error {
	inspecting, cancel := context.WithTimeout(ctx, requestTimeout)
	info, err := w.inspect(inspecting, name)
	cancel()
	s := w.states[name]
	var found []change
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		found = changes(s.last, info, s.failing)
		s.last, s.failing = &info, false
	case !retryable(err):
		return err
	case !s.failing:
		s.failing = true
		found = []change{{Name: name, Event: "unseen", Error: errorText(err)}}
	}
	for _, c := range found {
		c.Time = time.Now()
		if err := w.report(c); err != nil {
			return err
		}
	}
	return nil
}

// repeat calls f at once, in each interval, and after each value of changed, but at most ten
// times in an interval, until f returns an error or ctx ends.
func repeat(ctx context.Context, interval time.Duration, changed <-chan struct{}, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		begun := time.Now()
		if err := f(); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-changed:
			select {
			case <-time.After(time.Until(begun.Add(interval / 10))):
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// retryable reports whether another request may succeed.
func retryable(err error) bool {
	return !errors.Is(err, lock.ErrInvalid) && !errors.Is(err, lock.ErrClosed) && !errors.Is(err, errors.ErrUnsupported)
}
