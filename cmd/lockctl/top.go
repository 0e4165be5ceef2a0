package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

type topFlags struct {
	interval interval
	prefix   string
	sort     string
	once     bool
}

// orders are what --sort takes. What is equal is ordered by name.
var orders = map[string]func(x, y *lock.Info) int{
	"waited": func(x, y *lock.Info) int {
		return cmp.Or(cmp.Compare(waited(y), waited(x)), cmp.Compare(len(y.Waiters), len(x.Waiters)), cmp.Compare(age(y), age(x)))
	},
	"waiters": func(x, y *lock.Info) int { return cmp.Compare(len(y.Waiters), len(x.Waiters)) },
	"held":    func(x, y *lock.Info) int { return cmp.Compare(age(y), age(x)) },
	"name":    func(*lock.Info, *lock.Info) int { return 0 },
}

var orderNames = []string{"waited", "waiters", "held", "name"}

// age is for how long a lock has been held, zero if the service does not know.
func age(i *lock.Info) time.Duration {
	if i.Holder == nil {
		return 0
	}
	return i.Holder.Age
}

// waited is for how long the one has waited that waits longest.
func waited(i *lock.Info) time.Duration {
	var most time.Duration
	for _, p := range i.Waiters {
		most = max(most, p.Age)
	}
	return most
}

func (a *app) topCommand() *cobra.Command {
	f := topFlags{interval: interval(2 * time.Second)}
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the held locks, again and again",
		Long: `Show the locks that are held, by whom, since when, how many wait for each and for how
long the first of them has: on a terminal in place, elsewhere one table after the
other, until a signal ends it. "-" stands for what the service does not tell: times
are counted by its own clock, and not every one has them.

If the service does not answer, the last table stays and the first line says since when.

Each refresh lists all held locks, like "list", whatever --prefix then leaves out:
in Redis it scans the keys of the database, so give it time where those are many.`,
		Example: `  lockctl top
  lockctl top --prefix orders/ --sort held
  lockctl top --once
  lockctl top --json --interval 10s | jq '.held | length'`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if orders[f.sort] == nil {
				return usagef("invalid --sort %q: want one of %s", f.sort, strings.Join(orderNames, ", "))
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *lock.Client) error { return a.top(ctx, c, &f) })
		},
	}
	fl := c.Flags()
	fl.Var(&f.interval, "interval", "how often to refresh, "+intervalHelp)
	fl.StringVar(&f.sort, "sort", "waited", "what comes first: "+strings.Join(orderNames, ", "))
	fl.BoolVar(&f.once, "once", false, "show one table and end")
	prefixFlag(c, &f.prefix)
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(orderNames, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// view is what top shows.
type view struct {
	backend string
	asked   time.Time
	held    []lock.Info // of the last answer
	failure string      // why there is none now
	seen    time.Time   // when there last was one; zero: never
	blinded int         // how often there ceased to be
}

func (a *app) top(ctx context.Context, c *lock.Client, f *topFlags) error {
	v := view{backend: c.Capabilities().Name}
	screen := !a.json && !f.once && term.IsTerminal(int(a.out.Fd()))
	if screen {
		fmt.Fprint(a.out, "\x1b[2J") // what was there scrolls nowhere: frames begin at the top
	}
	first := true
	err := each(ctx, time.Duration(f.interval), func() error {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		held, err := heldLocks(asking, c, f.prefix)
		cancel()
		switch {
		case ctx.Err() != nil: // which is how it ends
			return nil
		case err != nil && (f.once || !mayPass(err)):
			return err
		}
		v.update(held, err, orders[f.sort])
		switch {
		case a.json:
			err = a.line(v.json(), "")
		case screen:
			_, height, serr := term.GetSize(int(a.out.Fd()))
			if serr != nil {
				height = 0
			}
			_, err = a.out.Write(v.frame(height))
		default:
			var b bytes.Buffer
			if !first {
				b.WriteByte('\n')
			}
			v.table(&b, 0)
			_, err = a.out.Write(b.Bytes())
		}
		first = false
		if err == nil && f.once {
			return errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// update takes the answer to a question.
func (v *view) update(held []lock.Info, err error, order func(x, y *lock.Info) int) {
	v.asked = time.Now()
	if err != nil {
		if v.failure == "" {
			v.blinded++
		}
		v.failure = errorText(err)
		return
	}
	slices.SortStableFunc(held, func(x, y lock.Info) int { return order(&x, &y) })
	v.held, v.failure, v.seen = held, "", v.asked
}

// json is the view as a line; without an answer there are no locks in it.
func (v *view) json() any {
	if v.failure == "" {
		return struct {
			Time time.Time   `json:"time"`
			Held []lock.Info `json:"held"`
		}{v.asked, v.held}
	}
	return struct {
		Time  time.Time `json:"time"`
		Error string    `json:"error"`
	}{v.asked, v.failure}
}

const clock = "15:04:05"

func (v *view) head() string {
	if v.failure != "" {
		if v.seen.IsZero() {
			return fmt.Sprintf("%s: no answer at %s: %s", v.backend, v.asked.Format(clock), v.failure)
		}
		return fmt.Sprintf("%s: no answer at %s, the last was at %s: %s", v.backend, v.asked.Format(clock), v.seen.Format(clock), v.failure)
	}
	waiters := 0
	for _, i := range v.held {
		waiters += len(i.Waiters)
	}
	s := fmt.Sprintf("%s: %d held, %d waiting, at %s", v.backend, len(v.held), waiters, v.asked.Format(clock))
	if v.blinded > 0 {
		s += fmt.Sprintf(", times out of sight: %d", v.blinded)
	}
	return s
}

// table writes the view, on at most so many lines, or all if there is no height.
func (v *view) table(w io.Writer, height int) {
	fmt.Fprintln(w, v.head())
	if len(v.held) == 0 {
		return
	}
	rows := v.held
	if height > 0 && len(rows) > height-2 { // what is not shown needs a line too
		rows = rows[:max(height-3, 0)]
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tTOKEN\tHELD\tLEFT\tWAITERS\tWAITED\tHOLDER")
	for _, i := range rows {
		token, left, who := "-", "-", "?"
		if h := i.Holder; h != nil {
			if h.Token != 0 {
				token = fmt.Sprint(h.Token)
			}
			left, who = known(h.Left), holderText(&lock.Holder{Party: backend.Party{Owner: h.Owner, Metadata: h.Metadata}, Foreign: h.Foreign})
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", plain(i.Name), token, known(age(&i)), left, len(i.Waiters), known(waited(&i)), who)
	}
	_ = t.Flush() // to a buffer
	if n := len(v.held) - len(rows); n > 0 {
		fmt.Fprintf(w, "... and %d more\n", n)
	}
}

func known(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return round(d).String()
}

// frame is the view as it replaces the one before on a terminal of so many lines.
// The terminal cuts what is too wide.
func (v *view) frame(height int) []byte {
	var table, out bytes.Buffer
	v.table(&table, max(height-1, 0)) // the cursor stands on the last line
	out.WriteString("\x1b[?7l\x1b[H") // no wrapping; home
	for line := range strings.Lines(table.String()) {
		out.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\n")
	}
	out.WriteString("\x1b[J\x1b[?7h")
	return out.Bytes()
}
