package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func (a *app) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show who holds a lock and who waits for it",
		Long: `Show who holds a lock and who waits for it, in the order in which they will be
served where that is known. A lock that nobody holds is free, whether or not it
was ever used. The exit code is 0 in either case.`,
		Example: `  lockctl inspect nightly
  lockctl inspect nightly --json | jq .holder.token`,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *lock.Client) error {
				info, err := c.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				return a.result(info, func(w io.Writer) { writeInfo(w, info) })
			})
		},
	}
}

func writeInfo(w io.Writer, i lock.Info) {
	if i.Holder == nil {
		fmt.Fprintf(w, "%s: free\n", plain(i.Name))
	} else {
		fmt.Fprintf(w, "%s: held by %s\n", plain(i.Name), holderText(i.Holder))
	}
	for n, p := range i.Waiters {
		fmt.Fprintf(w, "  %d. waits: %s\n", n+1, holderText(&lock.Holder{Party: p}))
	}
}

func (a *app) listCommand() *cobra.Command {
	var prefix string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held",
		Example: `  lockctl list
  lockctl list --prefix orders/
  lockctl list --json | jq -r '.[].name'`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *lock.Client) error {
				held, err := heldLocks(ctx, c, prefix)
				if err != nil {
					return err
				}
				return a.result(held, func(w io.Writer) { writeList(w, held) })
			})
		},
	}
	prefixFlag(c, &prefix)
	return c
}

func prefixFlag(c *cobra.Command, prefix *string) {
	c.Flags().StringVar(prefix, "prefix", "", "only the locks whose names begin so")
	_ = c.RegisterFlagCompletionFunc("prefix", cobra.NoFileCompletions)
}

// heldLocks returns the locks that are held, by name, and with an error those that
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

func writeList(w io.Writer, held []lock.Info) {
	if len(held) == 0 {
		fmt.Fprintln(w, "no lock is held")
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tTOKEN\tLEFT\tWAITERS\tHOLDER")
	for _, i := range held {
		token, left, who := "-", "-", "?"
		if h := i.Holder; h != nil {
			if h.Token != 0 {
				token = fmt.Sprint(h.Token)
			}
			if h.Left > 0 {
				left = round(h.Left).String()
			}
			who = holderText(&lock.Holder{Party: h.Party, Foreign: h.Foreign})
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", plain(i.Name), token, left, len(i.Waiters), who)
	}
	_ = t.Flush() // as with every other write to stdout, nobody is left to tell
}

func (a *app) breakCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "break NAME",
		Short: "Free a lock, whoever holds it",
		Long: `Free a lock, whoever holds it: the next in the queue gets it, with a greater
token. For a holder of which you know that it is gone. One that is still alive
goes on until it notices, at once where the service can tell it and else at its
next renewal; until then two believe that they hold the lock.

On a terminal the holder is shown and you are asked; elsewhere --yes is needed.`,
		Example: `  lockctl break nightly
  lockctl break --yes nightly`,
		Args:              oneName,
		ValidArgsFunction: a.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *lock.Client) error { return a.breakLock(ctx, c, args[0], yes) })
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (a *app) breakLock(ctx context.Context, c *lock.Client, name string, yes bool) error {
	if !yes {
		if err := a.confirmBreak(ctx, c, name); err != nil {
			return err
		}
	}
	removed, err := c.Break(ctx, name)
	if err != nil {
		return err
	}
	type broken struct {
		Name    string       `json:"name"`
		Removed *lock.Holder `json:"removed"`
	}
	return a.result(broken{name, removed}, func(w io.Writer) {
		if removed == nil {
			fmt.Fprintf(w, "%s: was free\n", plain(name))
			return
		}
		fmt.Fprintf(w, "%s: taken from %s\n", plain(name), holderText(removed))
	})
}

// confirmBreak asks the person at the terminal.
func (a *app) confirmBreak(ctx context.Context, c *lock.Client, name string) error {
	info, err := c.Inspect(ctx, name)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		info = lock.Info{Name: name}
	case err != nil:
		return err
	case info.Holder == nil:
		return nil // breaking it changes nothing, and says so
	}
	if !term.IsTerminal(int(a.in.Fd())) {
		return usagef("break %q asks before it acts, and stdin is not a terminal: want --yes", name)
	}
	who := "an unknown holder"
	if info.Holder != nil {
		who = holderText(info.Holder)
	}
	fmt.Fprintf(a.err, "%s is held by %s.\nBreak it? [y/N] ", plain(name), who)
	answered := make(chan string, 1)
	go func() { // left behind when a signal ends the wait: the process ends too
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answered <- line
	}()
	select {
	case line := <-answered:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return &failure{codeFailed, fmt.Errorf("%q was not broken", name)}
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return context.Cause(ctx)
	}
}

func (a *app) pingCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ping",
		Short: "Measure a round trip to the service that keeps the locks",
		Example: `  lockctl ping --url redis://localhost:6379/0
  lockctl ping --json | jq .round_trip_ns`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *lock.Client) error {
				if err := c.Ping(ctx); err != nil { // the first may have to connect
					return err
				}
				sent := time.Now()
				if err := c.Ping(ctx); err != nil {
					return err
				}
				took := time.Since(sent)
				type pong struct {
					Backend   string        `json:"backend"`
					RoundTrip time.Duration `json:"round_trip_ns"`
				}
				name := c.Capabilities().Name
				return a.result(pong{name, took}, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", name, round(took)) })
			})
		},
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version and the URL schemes that are built in",
		Example: `  lockctl version
  lockctl version --json | jq -r '.schemes[]'`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			version := "unknown"
			if b, ok := debug.ReadBuildInfo(); ok {
				version = b.Main.Version
				for _, s := range b.Settings {
					if s.Key == "vcs.revision" && version == "(devel)" {
						version += " " + s.Value
					}
				}
			}
			type about struct {
				Version string   `json:"version"`
				Go      string   `json:"go"`
				Schemes []string `json:"schemes"`
			}
			v := about{version, runtime.Version(), backend.Schemes()}
			return a.result(v, func(w io.Writer) {
				fmt.Fprintf(w, "lockctl %s, built with %s, for %s\n", v.Version, v.Go, strings.Join(v.Schemes, ", "))
			})
		},
	}
}
