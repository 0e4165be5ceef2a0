package lockcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock"
)

type topFlags struct {
	interval interval
	prefix   string
	sort     string
	once     bool
}

// orders are the values of --sort. Equal locks are ordered by name.
var orders = map[string]func(x, y *lock.Info) int{
	"waited": func(x, y *lock.Info) int {
		return cmp.Or(cmp.Compare(longestWait(y), longestWait(x)), cmp.Compare(len(y.Waiters), len(x.Waiters)), cmp.Compare(age(y), age(x)))
	},
	"waiters": func(x, y *lock.Info) int { return cmp.Compare(len(y.Waiters), len(x.Waiters)) },
	"held":    func(x, y *lock.Info) int { return cmp.Compare(age(y), age(x)) },
	"name":    func(*lock.Info, *lock.Info) int { return 0 },
}

var orderNames = []string{"waited", "waiters", "held", "name"}

// age returns for how long the holder has had the lock, zero if unknown.
func age(i *lock.Info) time.Duration {
	if i.Holder == nil {
		return 0
	}
	return i.Holder.Age
}

// longestWait returns the longest wait of the waiters.
func longestWait(i *lock.Info) time.Duration {
	var most time.Duration
	for _, w := range i.Waiters {
		most = max(most, w.Age)
	}
	return most
}

func (a *App) topCommand() *Command {
	f := topFlags{interval: interval(2 * time.Second)}
	c := &Command{
		Use:   "top",
		Short: "Show the held locks repeatedly",
		Long: `Show the held locks with their holder, the time held, the number of waiters and the
longest wait: in place on a terminal, elsewhere one table after another, until a
signal. "-" is a value that the service does not have. Times are those of its clock.

If the service does not answer within 3 s, the last table remains and the first line
says since when. On a terminal the key q ends top, and long names are cut to its width.
If the service has no age of waiters, the locks with the most waiters come first.

Each refresh lists all held locks, like "list", before --prefix selects. In Redis that
scans the keys of the database: use a longer --interval if there are many.`,
		Example: `  lockctl top
  lockctl top --prefix orders/ --sort held
  lockctl top --once
  lockctl top -o json --interval 10s | jq '.held | length'`,
		Flags: NewFlagSet(),
		Run: func(ctx context.Context, _ []string) error {
			if orders[f.sort] == nil {
				return Usagef("invalid --sort %q: want one of %s", f.sort, strings.Join(orderNames, ", "))
			}
			return a.withClient(ctx, &serviceLimit{}, func(ctx context.Context, c *lock.Client) error { return a.top(ctx, c, &f) })
		},
	}
	fl := c.Flags
	fl.Var(&f.interval, "interval", "time between two refreshes, "+intervalHelp)
	fl.StringVar(&f.sort, "sort", "waited", "order of the locks: "+strings.Join(orderNames, ", "))
	fl.BoolVar(&f.once, "once", false, "show one table and exit")
	prefixFlag(fl, &f.prefix)
	fl.Complete("sort", func() []string { return orderNames })
	return c
}

func (a *App) top(ctx context.Context, c *lock.Client, f *topFlags) error {
	v := view{backend: c.Capabilities().Name}
	inPlace := !a.json && !f.once && isTerminal(a.Out)
	if inPlace {
		var stop func()
		ctx, stop = untilKey(ctx, a.In)
		defer stop()
		fmt.Fprint(a.Out, "\x1b[2J") // a frame begins at the first line
	}
	first := true
	err := repeat(ctx, time.Duration(f.interval), nil, func() error {
		listing, cancel := context.WithTimeout(ctx, requestTimeout)
		held, err := heldLocks(listing, c, f.prefix)
		cancel()
		switch {
		case ctx.Err() != nil: // a signal or a key ended top
			return nil
		case err != nil && (f.once || !retryable(err)):
			return err
		}
		v.update(held, err, orders[f.sort])
		switch {
		case a.json:
			err = a.line(v.json(), "")
		case inPlace:
			_, err = a.Out.Write(v.frame(a.screen()))
		default:
			var b bytes.Buffer
			if !first {
				b.WriteByte('\n')
			}
			s := a.screen()
			s.height = 0
			v.table(&b, s)
			_, err = a.Out.Write(b.Bytes())
		}
		first = false
		if err == nil && f.once {
			return errDone
		}
		return err
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// view is the content of top.
type view struct {
	backend string
	updated time.Time
	held    []lock.Info // of the last answer
	failure string      // "" if the last request succeeded
	seen    time.Time   // of the last answer; zero if there was none
	outages int
}

// update takes the result of a request.
func (v *view) update(held []lock.Info, err error, order func(x, y *lock.Info) int) {
	v.updated = time.Now()
	if err != nil {
		if v.failure == "" {
			v.outages++
		}
		v.failure = errorText(err)
		return
	}
	slices.SortStableFunc(held, func(x, y lock.Info) int { return order(&x, &y) })
	v.held, v.failure, v.seen = held, "", v.updated
}

// json returns the view for JSON: the locks, or the error without locks.
func (v *view) json() any {
	if v.failure == "" {
		return struct {
			Time time.Time   `json:"time"`
			Held []lock.Info `json:"held"`
		}{v.updated, v.held}
	}
	return struct {
		Time  time.Time `json:"time"`
		Error string    `json:"error"`
	}{v.updated, v.failure}
}

func (v *view) head() string {
	const clock = "15:04:05"
	now := v.updated.Format(clock)
	switch {
	case v.failure != "" && v.seen.IsZero():
		return fmt.Sprintf("%s: no answer at %s: %s", v.backend, now, v.failure)
	case v.failure != "":
		return fmt.Sprintf("%s: no answer at %s, the last was at %s: %s", v.backend, now, v.seen.Format(clock), v.failure)
	}
	waiters := 0
	for _, i := range v.held {
		waiters += len(i.Waiters)
	}
	s := fmt.Sprintf("%s: %d held, %d waiting, at %s", v.backend, len(v.held), waiters, now)
	if v.outages > 0 {
		s += fmt.Sprintf(", outages: %d", v.outages)
	}
	return s
}

// table writes the view in the size of s, or completely if that is 0. The first line is not
// cut.
func (v *view) table(w io.Writer, s screen) {
	fmt.Fprintln(w, v.head())
	if len(v.held) == 0 {
		return
	}
	rows := v.held
	if s.height > 0 && len(rows) > s.height-2 { // one line says how many are not shown
		rows = rows[:max(s.height-3, 0)]
	}
	writeTable(w, []string{"NAME", "TOKEN", "HELD", "LEFT", "WAITERS", "WAITED", "HOLDER"}, rows, s)
	if n := len(v.held) - len(rows); n > 0 {
		fmt.Fprintf(w, "... and %d more\n", n)
	}
}

// frame returns the view for a terminal, on which it replaces the frame before. The
// terminal cuts lines that are too long.
func (v *view) frame(s screen) []byte {
	var table, out bytes.Buffer
	s.height = max(s.height-1, 0) // the cursor needs the last line
	v.table(&table, s)
	out.WriteString("\x1b[?7l\x1b[H") // no wrapping; home
	for line := range strings.Lines(table.String()) {
		out.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\n")
	}
	out.WriteString("\x1b[J\x1b[?7h")
	return out.Bytes()
}
