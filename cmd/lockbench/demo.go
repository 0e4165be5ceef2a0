package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/fence"
	"github.com/interlock-go/lock/lockcmd"
)

type demoFlags struct{ workers, each int }

func demoCommand(a *lockcmd.App) *lockcmd.Command {
	f := demoFlags{}
	flags := lockcmd.NewFlagSet()
	flags.IntVar(&f.workers, "workers", 8, "number of workers, 2 to 64")
	flags.IntVar(&f.each, "each", 25, "increments of each worker, 1 to 10000")
	return &lockcmd.Command{
		Use:   "demo",
		Short: "Show what goes wrong without a lock",
		Long: `Run three demonstrations and print their results:

  - Workers increment a counter: each reads it, adds one and writes it back. Without a
    lock, updates are lost.
  - Two buyers want 60 each of a stock of 100. Without a lock both find enough.
  - A holder is stopped for longer than its lease. Another client takes the lock and
    writes; then the first holder continues and writes. A lock cannot prevent that. The
    resource can: it refuses a fencing token lower than one that it has seen.

The workers are concurrent and each has a client of its own; counter and stock are in
the memory of lockbench. Without the lock the workers start in step, so that the race
always happens.

The lock is in memory too, unless --url selects a service; the environment is not read.
On a service the names are new ones below "lockbench-demo/".

The exit code is 1 if a demonstration with the lock fails.`,
		Example: `  lockbench demo
  lockbench demo --url redis://localhost:6379/0
  lockbench demo --workers 32 --each 100`,
		Flags: flags,
		Run: func(ctx context.Context, _ []string) error {
			if f.workers < 2 || f.workers > 64 {
				return lockcmd.Usagef("invalid --workers %d: want 2 to 64", f.workers)
			}
			if f.each < 1 || f.each > 10_000 {
				return lockcmd.Usagef("invalid --each %d: want 1 to 10000", f.each)
			}
			url := a.FlagURL() // not that of the environment
			return lockcmd.UntilSignal(ctx, func(ctx context.Context) error { return demo(ctx, a, &f, url) })
		},
	}
}

func demo(ctx context.Context, a *lockcmd.App, f *demoFlags, url string) error {
	prefix := "lockbench-demo/" + strings.ToLower(rand.Text()[:8])
	if u, err := backend.ParseURL(url); url == "" || err == nil && u.Scheme == "mem" && len(u.Hosts) == 0 {
		// Clients of mem:// without a name share nothing.
		url = "mem://" + strings.ReplaceAll(prefix, "/", "-")
	}
	var clients []*lock.Client
	defer func() {
		for _, c := range clients {
			a.Close(c)
		}
	}()
	for range f.workers {
		c, err := a.Open(ctx, url)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	mutexes := func(name string) (out []lock.Mutex) {
		for _, c := range clients {
			out = append(out, c.Mutex(prefix+"/"+name))
		}
		return out
	}
	var text io.Writer = a.Out
	if a.JSON() {
		text = io.Discard
	}
	r := &demoReport{Backend: clients[0].Capabilities().Name}
	if err := r.run(ctx, text, f, mutexes, clients); err != nil {
		return err
	}
	if a.JSON() {
		if err := a.Result(r, nil); err != nil {
			return err
		}
	}
	return r.verdict()
}

// demoReport has the results of the demonstrations.
type demoReport struct {
	Backend string          `json:"backend"`
	Counter []counterResult `json:"counter"`
	Stock   []stockResult   `json:"stock"`
	Fencing *fencingResult  `json:"fencing,omitempty"` // nil if the service has no tokens
	Failed  bool            `json:"failed"`
}

func (r *demoReport) run(ctx context.Context, w io.Writer, f *demoFlags, mutexes func(string) []lock.Mutex, clients []*lock.Client) error {
	if err := r.counter(ctx, w, f, mutexes("counter")); err != nil {
		return err
	}
	if err := r.stock(ctx, w, mutexes("stock")[:buyers]); err != nil {
		return err
	}
	return r.fencing(ctx, w, clients, mutexes("ledger")[0].Name())
}

func (r *demoReport) counter(ctx context.Context, w io.Writer, f *demoFlags, locks []lock.Mutex) error {
	fmt.Fprintf(w, "The lost update: %d workers read a counter, add one and write it back, %d times each.\n", f.workers, f.each)
	for _, ms := range [][]lock.Mutex{make([]lock.Mutex, f.workers), locks} {
		c, err := increment(ctx, ms, f.each, ms[0] == nil)
		if err != nil {
			return err
		}
		r.Counter = append(r.Counter, c)
		r.Failed = r.Failed || c.Locked && c.wrong()
		fmt.Fprintf(w, "  %s %d increments in %v, the counter says %d: %s\n", r.label(c.Locked), c.Made, c.Took.Round(time.Millisecond), c.Says, amount(c.Lost, "lost"))
	}
	return nil
}

func (r *demoReport) stock(ctx context.Context, w io.Writer, locks []lock.Mutex) error {
	fmt.Fprintf(w, "\nOverselling: %d buyers want %d each of a stock of %d.\n", buyers, order, stock)
	for _, ms := range [][]lock.Mutex{make([]lock.Mutex, buyers), locks} {
		s, err := sell(ctx, ms, ms[0] == nil)
		if err != nil {
			return err
		}
		r.Stock = append(r.Stock, s)
		r.Failed = r.Failed || s.Locked && s.wrong()
		fmt.Fprintf(w, "  %s sold %d, the stock says %d: %s, %s\n", r.label(s.Locked), s.Sold, s.Says, amount(s.Oversold, "oversold"), amount(s.Refused, "refused"))
	}
	return nil
}

func (r *demoReport) fencing(ctx context.Context, w io.Writer, clients []*lock.Client, name string) error {
	end := "its lease expires"
	if clients[0].Capabilities().Loss == backend.LossProcess {
		end = "its lock is broken"
	}
	fmt.Fprintf(w, "\nThe stopped holder: it is stopped before it writes, %s, another client takes the lock and writes, then it continues and writes.\n", end)
	v, err := writeAfterLoss(ctx, clients[0], clients[1], name)
	switch {
	case errors.Is(err, fence.ErrNoToken):
		fmt.Fprintf(w, "  %s has no fencing tokens: the resource cannot distinguish the two\n", r.Backend)
		return nil
	case err != nil:
		return err
	}
	r.Fencing = &v
	r.Failed = r.Failed || v.wrong()
	fmt.Fprintf(w, "  tokens not checked: the last write is that of token %d, though %d came after it\n", v.Unchecked, v.Successor)
	if v.Refusal == "" {
		fmt.Fprintf(w, "  tokens checked:     the last write is that of token %d; none was refused\n", v.Checked)
		return nil
	}
	fmt.Fprintf(w, "  tokens checked:     the last write is that of token %d; the other was refused (%s)\n", v.Checked, v.Refusal)
	return nil
}

func (r *demoReport) verdict() error {
	if r.Failed {
		return fmt.Errorf("the lock on %s did not protect the data", r.Backend)
	}
	return nil
}

func (r *demoReport) label(locked bool) string {
	if locked {
		return "with a lock on " + r.Backend + ":"
	}
	return fmt.Sprintf("%-*s", len("with a lock on "+r.Backend+":"), "without a lock:")
}

func amount(n int64, unit string) string {
	if n == 0 {
		return "none " + unit
	}
	return fmt.Sprintf("%d %s", n, unit)
}
