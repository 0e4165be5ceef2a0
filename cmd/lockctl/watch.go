package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// askTimeout bounds a question of those who look on: without an answer they say so,
// and ask again.
const askTimeout = 3 * time.Second

type watchFlags struct {
	interval interval
	count    int
	timeout  positive
}

func (a *app) watchCommand() *cobra.Command {
	f := watchFlags{interval: interval(time.Second)}
	c := &cobra.Command{
		Use:   "watch NAME...",
		Short: "Tell each change of a lock: who holds it, who waits for it",
		Long: `Tell how each lock stands, and then each change, a line for each, until a signal,
--count or --timeout ends it:

  held by ...           it has a holder, or another one
  free ...              nobody holds it; whether it was unlocked, was broken or
                        ran out of time cannot be told from outside
  waits: ...            somebody has queued up for it, where the service has a queue
  waits no more: ...    somebody has left the queue and is not the holder
  no answer: ...        the service was asked in vain; said once, until it answers

The service is asked about each name once in each interval, which is all that it
costs: a change is seen an interval late at most, and a holder who came and went
between two questions is not seen.

With --json each line is an object with the event (held, free, waits, gone, unseen), the
time here, the name, and the holder, the one before or the waiter as "inspect" shows it.

The exit code is 0, or 1 if --timeout came before --count lines.`,
		Example: `  lockctl watch nightly
  lockctl watch orders/42 orders/43 --interval 200ms
  lockctl watch nightly --count 2 --timeout 1m >/dev/null && echo it changed
  lockctl watch --json nightly | jq -r 'select(.event == "held").holder.metadata'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("no arguments for %s: want one NAME or more", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.count < 1 && cmd.Flags().Changed("count") {
				return usagef("invalid --count %d: want 1 or more", f.count)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *lock.Client) error { return a.watch(ctx, c, &f, args) })
		},
	}
	fl := c.Flags()
	fl.Var(&f.interval, "interval", "how often to ask, "+intervalHelp)
	fl.IntVar(&f.count, "count", 0, "end after so many lines (default no end)")
	fl.Var(&f.timeout, "timeout", "end after this time (default no end)")
	return c
}

// change is something that was seen to be other than before.
type change struct {
	Time    time.Time      `json:"time"` // when it was seen, here
	Name    string         `json:"name"`
	Event   string         `json:"event"`
	Holder  *lock.Holder   `json:"holder,omitempty"`  // held
	Before  *lock.Holder   `json:"before,omitempty"`  // held, free: who held it when it was last seen
	Waiter  *backend.Party `json:"waiter,omitempty"`  // waits, gone
	Waiters int            `json:"waiters,omitempty"` // how many wait now, where that is known
	Error   string         `json:"error,omitempty"`   // unseen
}

func (c *change) String() string {
	s := c.Time.Format("2006-01-02T15:04:05.000Z07:00") + " " + plain(c.Name) + ": "
	switch c.Event {
	case "held":
		s += "held by " + holderText(c.Holder)
		if c.Before != nil {
			s += "; before by " + pastText(c.Before)
		}
	case "free":
		s += "free"
		if c.Before != nil {
			s += "; was held by " + pastText(c.Before)
		}
	case "waits":
		s += fmt.Sprintf("waits: %s (%d in all)", holderText(&lock.Holder{Party: *c.Waiter}), c.Waiters)
	case "gone":
		s += fmt.Sprintf("waits no more: %s (%d left)", pastText(&lock.Holder{Party: *c.Waiter}), c.Waiters)
	case "unseen":
		s += "no answer: " + c.Error
	}
	return s
}

// pastText is holderText without what is true of a present holder only.
func pastText(h *lock.Holder) string {
	p := backend.Party{Owner: h.Owner, Metadata: h.Metadata}
	return holderText(&lock.Holder{Party: p, Token: h.Token, Foreign: h.Foreign})
}

// changes tells what is new about a lock since it was seen last, which is nil before
// the first time. again asks for its state even if that is the same.
func changes(last *lock.Info, now lock.Info, again bool) []change {
	var out []change
	add := func(c change) {
		c.Name, c.Waiters = now.Name, len(now.Waiters)
		out = append(out, c)
	}
	var before lock.Info
	if last != nil {
		before = *last
	}
	for _, p := range without(before.Waiters, now.Waiters) {
		if now.Holder == nil || now.Holder.Owner != p.Owner { // else its wait was not in vain
			add(change{Event: "gone", Waiter: &p})
		}
	}
	if same := sameHolder(before.Holder, now.Holder); !same || last == nil || again {
		c := change{Event: "free", Holder: now.Holder}
		if now.Holder != nil {
			c.Event = "held"
		}
		if !same {
			c.Before = before.Holder
		}
		add(c)
	}
	for _, p := range without(now.Waiters, before.Waiters) {
		add(change{Event: "waits", Waiter: &p})
	}
	return out
}

func sameHolder(x, y *lock.Holder) bool {
	if x == nil || y == nil {
		return x == y
	}
	return x.Owner == y.Owner && x.Token == y.Token
}

// without returns the parties of all that are not among others.
func without(all, others []backend.Party) []backend.Party {
	among := map[string]bool{}
	for _, p := range others {
		among[p.Owner] = true
	}
	var out []backend.Party
	for _, p := range all {
		if !among[p.Owner] {
			out = append(out, p)
		}
	}
	return out
}

// watcher asks about locks again and again.
type watcher struct {
	names    []string
	interval time.Duration
	ask      func(ctx context.Context, name string) (lock.Info, error)
	tell     func(change) error // an error ends it
}

// run returns nil when ctx has ended, and an error if asking can never succeed.
func (w *watcher) run(ctx context.Context) error {
	type sight struct {
		last    *lock.Info
		failing bool
	}
	seen := map[string]*sight{}
	return each(ctx, w.interval, func() error {
		for _, name := range w.names {
			s := seen[name]
			if s == nil {
				s = &sight{}
				seen[name] = s
			}
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			info, err := w.ask(asking, name)
			cancel()
			var news []change
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				news = changes(s.last, info, s.failing)
				s.last, s.failing = &info, false
			case !mayPass(err):
				return err
			case !s.failing:
				s.failing = true
				news = []change{{Name: name, Event: "unseen", Error: errorText(err)}}
			}
			for _, c := range news {
				c.Time = time.Now()
				if err := w.tell(c); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// each calls f at once and in each interval, until it returns an error or ctx ends.
func each(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// mayPass tells whether asking again may succeed.
func mayPass(err error) bool {
	return !errors.Is(err, lock.ErrInvalid) && !errors.Is(err, lock.ErrClosed) && !errors.Is(err, errors.ErrUnsupported)
}

var errEnough = errors.New("as many lines as were asked for")

func (a *app) watch(ctx context.Context, c *lock.Client, f *watchFlags, names []string) error {
	told := 0
	w := watcher{names: names, interval: time.Duration(f.interval), ask: c.Inspect, tell: func(c change) error {
		if err := a.line(c, c.String()); err != nil {
			return err
		}
		if told++; told == f.count {
			return errEnough
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
	case errors.Is(err, errEnough):
		return nil
	case err != nil || f.count == 0: // being ended is how a watch without a count ends
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &failure{codeFailed, fmt.Errorf("%d of %d lines within %v", told, f.count, time.Duration(f.timeout))}
}
