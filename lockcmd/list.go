package lockcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func (a *App) listCommand() *Command {
	var prefix string
	var limit serviceLimit
	most := 0
	flags := NewFlagSet()
	prefixFlag(flags, &prefix)
	flags.IntVar(&most, "limit", 0, "only the first N locks, and how many there are; 0: all")
	limit.addFlag(flags)
	return &Command{
		Use:   "list",
		Short: "List the held locks",
		Long: `List the held locks by name, with their holders and the number of their waiters. On a
terminal long names and descriptions are cut to its width, and the head is bold unless
NO_COLOR is set; elsewhere names and descriptions are complete. "-" is a value that the
service does not have.`,
		Example: `  lockctl list
  lockctl list --prefix orders/ --limit 100
  lockctl list -o json | jq -r '.[].name'`,
		Flags: flags,
		Run: func(ctx context.Context, _ []string) error {
			if most < 0 {
				return Usagef("invalid --limit %d: want 0 or more", most)
			}
			return a.query(ctx, &limit, func(ctx context.Context, c *lock.Client) error {
				held, err := heldLocks(ctx, c, prefix)
				if err != nil {
					return err
				}
				if n := len(held); most > 0 && n > most {
					held = held[:most]
					defer a.Notice("limit", fmt.Sprintf("%d of %d locks", most, n), map[string]any{"locks": n})
				}
				return a.Result(held, func(w io.Writer) { writeList(w, held, a.screen()) })
			})
		},
	}
}

func prefixFlag(flags *FlagSet, prefix *string) {
	flags.StringVar(prefix, "prefix", "", "only locks whose names begin with this prefix")
}

// heldLocks returns the held locks by name. With an error it returns the locks that
// came before it.
func heldLocks(ctx context.Context, c *lock.Client, prefix string) ([]lock.Info, error) {
	held := []lock.Info{} // "[]" in JSON, not "null"
	var failed error
	for info, err := range c.List(ctx) {
		if err != nil {
			failed = err
		} else if strings.HasPrefix(info.Name, prefix) {
			held = append(held, info)
		}
	}
	slices.SortFunc(held, func(x, y lock.Info) int { return cmp.Compare(x.Name, y.Name) })
	return held, failed
}

func writeList(w io.Writer, held []lock.Info, s screen) {
	if len(held) == 0 {
		fmt.Fprintln(w, "no lock is held")
		return
	}
	writeTable(w, []string{"NAME", "TOKEN", "LEFT", "WAITERS", "HOLDER"}, held, s)
}

// cell returns a column of a lock, "-" if the service does not know it.
func cell(column string, i *lock.Info) string {
	h := i.Holder
	switch column {
	case "NAME":
		return quoted(i.Name)
	case "WAITERS":
		return fmt.Sprint(len(i.Waiters))
	case "WAITED":
		return known(longestWait(i))
	case "HELD":
		return known(age(i))
	case "LEFT":
		if h != nil {
			return known(h.Left)
		}
	case "TOKEN":
		if h != nil && h.Token != 0 {
			return fmt.Sprint(h.Token)
		}
	case "HOLDER":
		if h == nil {
			return "?"
		}
		text := holderText(&lock.Holder{Contender: backend.Contender{Owner: h.Owner, Metadata: h.Metadata, Share: h.Share}, Foreign: h.Foreign})
		if n := len(i.Others); n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		return text
	}
	return "-"
}

func known(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return round(d).String()
}
