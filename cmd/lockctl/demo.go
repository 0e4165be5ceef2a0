package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/fence"
)

// What the stories are about. The stock and its buyers are those of the textbooks.
const (
	stock     = 100
	order     = 60
	buyers    = 2
	readWrite = time.Millisecond // between reading and writing, as over a network
	stoppedAt = time.Second      // the TTL of the holder that is stopped, if the service takes so short a one
)

type demoFlags struct{ workers, each int }

func (a *app) demoCommand() *cobra.Command {
	f := demoFlags{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show what goes wrong without a lock, and does not with one",
		Long: `Tell three short stories, each with the numbers that came out:

  - Workers count: each reads a counter, adds one and writes it back. Without a
    lock they overwrite each other's.
  - Two buyers want 60 each of a stock of 100. Without a lock both find enough.
  - A holder is stopped for longer than its lease, another takes the lock and writes,
    and the first wakes up and goes on. No lock can prevent that; what is written
    to can, by refusing a fencing token lower than one that it has seen.

The workers are concurrent and each has a client of its own; counter and stock are in
the memory of lockctl. Without the lock they begin in step, so that the race, which
else comes when it is least wanted, is certain.

The lock is in memory too, unless --url says where; ` + envURL + ` is not read. On a service
the names are new ones below "lockctl-demo/", and disturb nobody.

The exit code is 1 if with the lock anything was lost.`,
		Example: `  lockctl demo
  lockctl demo --url redis://localhost:6379/0
  lockctl demo --workers 32 --each 100`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), &f) },
	}
	c.Flags().IntVar(&f.workers, "workers", 8, "how many count, 2 to 64")
	c.Flags().IntVar(&f.each, "each", 25, "how often each of them does, 1 to 10000")
	return c
}

// counted is how counting ended.
type counted struct {
	Made   int64         `json:"made"`    // increments
	Says   int64         `json:"says"`    // the counter
	Lost   int64         `json:"lost"`    // increments
	Took   time.Duration `json:"took_ns"` // all together
	Locked bool          `json:"locked"`
}

// sold is how selling ended.
type sold struct {
	Sold     int64 `json:"sold"`
	Says     int64 `json:"says"`     // the stock
	Oversold int64 `json:"oversold"` // more than there was
	Refused  int64 `json:"refused"`  // buyers
	Locked   bool  `json:"locked"`
}

// woken is how the holder fared that was stopped.
type woken struct {
	Stopped   uint64 `json:"stopped_token"`
	Successor uint64 `json:"successor_token"`
	Unchecked uint64 `json:"unchecked"` // whose write stands where no token was checked
	Checked   uint64 `json:"checked"`   // and where it was
	Refusal   string `json:"refusal"`
}

func (c counted) wrong() bool { return c.Lost != 0 }
func (s sold) wrong() bool    { return s.Oversold != 0 || s.Sold != stock-s.Says }
func (w woken) wrong() bool   { return w.Successor <= w.Stopped || w.Checked != w.Successor }

func (a *app) demo(ctx context.Context, f *demoFlags) error {
	if f.workers < 2 || f.workers > 64 {
		return usagef("invalid --workers %d: want 2 to 64", f.workers)
	}
	if f.each < 1 || f.each > 10_000 {
		return usagef("invalid --each %d: want 1 to 10000", f.each)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	mine := "lockctl-demo/" + strings.ToLower(rand.Text()[:8])
	url := a.url
	if u, err := backend.ParseURL(url); url == "" || err == nil && u.Scheme == "mem" && len(u.Hosts) == 0 {
		// a space that the clients have in common, which one without a name is not
		url = "mem://" + strings.ReplaceAll(mine, "/", "-")
	}
	var clients []*lock.Client
	defer func() {
		for _, c := range clients {
			a.close(c)
		}
	}()
	for range f.workers {
		c, err := a.openURL(ctx, url)
		if err != nil {
			return interrupted(ctx, err)
		}
		clients = append(clients, c)
	}
	mutexes := func(name string) (out []lock.Mutex) {
		for _, c := range clients {
			out = append(out, c.Mutex(mine+"/"+name))
		}
		return out
	}
	var text io.Writer = a.out
	if a.json {
		text = io.Discard
	}
	d := &demonstration{On: clients[0].Capabilities().Name}
	if err := d.tell(ctx, text, f, mutexes, clients); err != nil {
		return interrupted(ctx, err)
	}
	if a.json {
		if err := a.result(d, nil); err != nil {
			return err
		}
	}
	return d.verdict()
}

// demonstration is what the stories came to.
type demonstration struct {
	On      string    `json:"backend"`
	Counter []counted `json:"counter"`
	Stock   []sold    `json:"stock"`
	Fencing *woken    `json:"fencing,omitempty"` // nil where the service has no tokens
	Failed  bool      `json:"failed"`
}

func (d *demonstration) tell(ctx context.Context, text io.Writer, f *demoFlags, mutexes func(string) []lock.Mutex, clients []*lock.Client) error {
	fmt.Fprintf(text, "The lost update: %d workers read a counter, add one and write it back, %d times each.\n", f.workers, f.each)
	for _, ms := range [][]lock.Mutex{make([]lock.Mutex, f.workers), mutexes("counter")} {
		c, err := count(ctx, ms, f.each, ms[0] == nil)
		if err != nil {
			return err
		}
		d.Counter = append(d.Counter, c)
		d.Failed = d.Failed || c.Locked && c.wrong()
		fmt.Fprintf(text, "  %s %d increments in %v, the counter says %d: %s\n", d.how(c.Locked), c.Made, round(c.Took), c.Says, amount(c.Lost, "lost"))
	}
	fmt.Fprintf(text, "\nOverselling: %d buyers want %d each of a stock of %d.\n", buyers, order, stock)
	for _, ms := range [][]lock.Mutex{make([]lock.Mutex, buyers), mutexes("stock")[:buyers]} {
		s, err := sell(ctx, ms, ms[0] == nil)
		if err != nil {
			return err
		}
		d.Stock = append(d.Stock, s)
		d.Failed = d.Failed || s.Locked && s.wrong()
		fmt.Fprintf(text, "  %s sold %d, the stock says %d: %s, %s\n", d.how(s.Locked), s.Sold, s.Says, amount(s.Oversold, "oversold"), amount(s.Refused, "refused"))
	}
	ends := "its lease runs out"
	if clients[0].Capabilities().Loss == backend.LossProcess {
		ends = "its lock is broken"
	}
	fmt.Fprintf(text, "\nThe stopped holder: it is stopped before it writes, %s, another takes the lock and writes, it wakes up and writes.\n", ends)
	v, err := wake(ctx, clients[0], clients[1], mutexes("ledger")[0].Name())
	switch {
	case errors.Is(err, fence.ErrNoToken):
		fmt.Fprintf(text, "  %s has no fencing tokens: nothing could tell the two apart\n", d.On)
		return nil
	case err != nil:
		return err
	}
	d.Fencing = &v
	d.Failed = d.Failed || v.wrong()
	fmt.Fprintf(text, "  tokens not checked: the write of token %d stands, though %d came after it\n", v.Unchecked, v.Successor)
	if v.Refusal == "" {
		fmt.Fprintf(text, "  tokens checked:     the write of token %d stands; none was refused\n", v.Checked)
		return nil
	}
	fmt.Fprintf(text, "  tokens checked:     the write of token %d stands; the other was refused (%s)\n", v.Checked, v.Refusal)
	return nil
}

func (d *demonstration) verdict() error {
	if d.Failed {
		return &failure{codeFailed, fmt.Errorf("the lock on %s did not protect what it should", d.On)}
	}
	return nil
}

func (d *demonstration) how(locked bool) string {
	if locked {
		return "with a lock on " + d.On + ":"
	}
	return fmt.Sprintf("%-*s", len("with a lock on "+d.On+":"), "without a lock:")
}

func amount(n int64, what string) string {
	if n == 0 {
		return "none " + what
	}
	return fmt.Sprintf("%d %s", n, what)
}

// number is kept as on a server: a read and a write are whole, but nothing keeps them
// together.
type number struct{ atomic.Int64 }

// under runs f for each mutex at once, under it as often as it is called for; a mutex
// may be nil. It returns the first error, which ends the others.
func under(ctx context.Context, ms []lock.Mutex, f func(ctx context.Context, worker int, do func(func() error) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i, m := range ms {
		all.Go(func() {
			do := func(g func() error) error {
				if m == nil {
					return g()
				}
				return lock.Do(ctx, m, func(context.Context) error { return g() })
			}
			if err := f(ctx, i, do); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// inStep returns a function in which each of n callers waits for the others, once: those
// who have read a number under no lock.
func inStep(n int) func() {
	var here sync.WaitGroup
	here.Add(n)
	return func() { here.Done(); here.Wait() }
}

// count has each worker increment a counter, in step the first time if asked to.
func count(ctx context.Context, ms []lock.Mutex, each int, step bool) (counted, error) {
	var counter number
	var made atomic.Int64
	allRead := inStep(len(ms))
	began := time.Now()
	err := under(ctx, ms, func(ctx context.Context, _ int, do func(func() error) error) error {
		for i := range each {
			err := do(func() error {
				n := counter.Load()
				if step && i == 0 {
					allRead()
				}
				if err := pauseFor(ctx, readWrite); err != nil {
					return err
				}
				counter.Store(n + 1)
				made.Add(1)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	c := counted{Made: made.Load(), Says: counter.Load(), Took: time.Since(began), Locked: ms[0] != nil}
	c.Lost = c.Made - c.Says
	return c, err
}

// sell has each buyer buy if the stock suffices.
func sell(ctx context.Context, ms []lock.Mutex, step bool) (sold, error) {
	var left number
	var gone, refused atomic.Int64
	left.Store(stock)
	allRead := inStep(len(ms))
	err := under(ctx, ms, func(ctx context.Context, _ int, do func(func() error) error) error {
		return do(func() error {
			n := left.Load()
			if step {
				allRead()
			}
			if n < order {
				refused.Add(1)
				return nil
			}
			if err := pauseFor(ctx, readWrite); err != nil {
				return err
			}
			left.Store(n - order)
			gone.Add(order)
			return nil
		})
	})
	s := sold{Sold: gone.Load(), Says: left.Load(), Refused: refused.Load(), Locked: ms[0] != nil}
	s.Oversold = max(s.Sold-stock, 0)
	return s, err
}

// wake has one client's holder stop until another's has written.
func wake(ctx context.Context, one, two *lock.Client, name string) (woken, error) {
	var w woken
	ttl := max(stoppedAt, one.Capabilities().MinTTL)
	// fixed, because whoever is stopped does not renew
	stopped, err := one.Mutex(name, lock.WithTTL(ttl), lock.WithoutRenewal()).Lock(ctx)
	if err != nil {
		return w, err
	}
	defer func() { _ = stopped.Unlock(context.WithoutCancel(ctx)) }() // lost, if all went well
	if one.Capabilities().Loss == backend.LossProcess {               // its lease ends only so
		if _, err := two.Break(ctx, name); err != nil {
			return w, err
		}
	}
	successor, err := two.Mutex(name).Lock(ctx)
	if err != nil {
		return w, err
	}
	defer func() { _ = successor.Unlock(context.WithoutCancel(ctx)) }() // the client's end frees it if this fails
	var guard fence.Guard
	write := func(l *lock.Lease) error {
		token, ok := l.Token()
		if !ok {
			return fence.ErrNoToken
		}
		w.Unchecked = token
		return guard.Do(token, func() error { w.Checked = token; return nil })
	}
	w.Stopped, _ = stopped.Token()
	w.Successor, _ = successor.Token()
	if err := write(successor); err != nil {
		return w, err
	}
	switch err := write(stopped); {
	case errors.Is(err, fence.ErrStale):
		w.Refusal = err.Error()
	case err != nil:
		return w, err
	}
	return w, nil
}

// pauseFor waits, unless ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
