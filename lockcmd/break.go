package lockcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/interlock-go/lock"
)

func (a *App) breakCommand() *Command {
	var yes bool
	flags := NewFlagSet()
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.Shorthand("y", "yes")
	return &Command{
		Use:   "break NAME",
		Short: "Release a lock of any holder",
		Long: `Release a lock of any holder: the first waiter gets it, with a greater token. Break
a lock only if its holder is gone. A holder that is alive continues until it notices
the loss: at once if the service notifies it, else at its next renewal. Until then
there are two holders.

On a terminal, break shows the holder and asks. Elsewhere --yes is required.`,
		Example: `  lockctl break nightly
  lockctl break --yes nightly`,
		Args:     oneArg("lock's NAME"),
		Complete: a.completeName,
		Flags:    flags,
		Run: func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(ctx context.Context, c *lock.Client) error { return a.breakLock(ctx, c, args[0], yes) })
		},
	}
}

func (a *App) breakLock(ctx context.Context, c *lock.Client, name string, yes bool) error {
	if !yes {
		if err := a.confirmBreak(ctx, c, name); err != nil {
			return err
		}
	}
	removed, err := c.Break(ctx, name)
	if err != nil {
		return err
	}
	result := struct {
		Name    string       `json:"name"`
		Removed *lock.Holder `json:"removed"`
	}{name, removed}
	return a.Result(result, func(w io.Writer) {
		if removed == nil {
			fmt.Fprintf(w, "%s: was free\n", quoted(name))
			return
		}
		fmt.Fprintf(w, "%s: taken from %s\n", quoted(name), holderText(removed))
	})
}

// confirmBreak shows the holder and asks the user.
func (a *App) confirmBreak(ctx context.Context, c *lock.Client, name string) error {
	info, err := c.Inspect(ctx, name)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		info = lock.Info{Name: name}
	case err != nil:
		return err
	case info.Holder == nil:
		return nil // Break says that the lock was free
	}
	if !isTerminal(a.In) {
		return Usagef("break %q asks before it acts, and stdin is not a terminal: want --yes", name)
	}
	holder := "an unknown holder"
	if info.Holder != nil {
		holder = holderText(info.Holder)
	}
	fmt.Fprintf(a.Err, "%s is held by %s.\nBreak it? [y/N] ", quoted(name), holder)
	answer := make(chan string, 1)
	go func() { // a signal leaves it behind; then the process ends too
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return WithCode(ExitFailed, fmt.Errorf("%q was not broken", name))
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return context.Cause(ctx)
	}
}
