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
	var owner string
	flags := NewFlagSet()
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.Shorthand("y", "yes")
	flags.StringVar(&owner, "owner", "", "release it only if this owner id, as inspect --json shows it, holds it")
	return &Command{
		Use:   "break NAME",
		Short: "Release a lock of any holder",
		Long: `Release a lock of any holder: the first waiter gets it, with a greater token. Break
a lock only if its holder is gone. A holder that is alive continues until it notices
the loss: at once if the service notifies it, else at its next renewal. Until then
there are two holders.

On a terminal, break shows the holder and asks. It then releases the lock only if that
holder still has it. Elsewhere --yes is required, which releases the lock of whichever
holder has it, unless --owner names one. If another holder has the lock, break changes
nothing and exits with 1.`,
		Example: `  lockctl break nightly
  lockctl break --yes nightly`,
		Args:     oneArg("lock's NAME"),
		Complete: a.completeName,
		Flags:    flags,
		Run: func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(ctx context.Context, c *lock.Client) error { return a.breakLock(ctx, c, args[0], owner, yes) })
		},
	}
}

func (a *App) breakLock(ctx context.Context, c *lock.Client, name, owner string, yes bool) error {
	held := true
	if !yes {
		var err error
		if owner, held, err = a.confirmBreak(ctx, c, name, owner); err != nil {
			return err
		}
	}
	var opts []lock.BreakOption
	if owner != "" {
		opts = append(opts, lock.IfHeldBy(owner))
	}
	var removed *lock.Holder
	if held {
		var err error
		if removed, err = c.Break(ctx, name, opts...); err != nil {
			return notBroken(name, err)
		}
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

// notBroken returns err, or the answer that another holder has the lock.
func notBroken(name string, err error) error {
	var other *lock.LockedError
	if !errors.As(err, &other) {
		return err
	}
	return WithCode(ExitFailed, fmt.Errorf("%q was not broken: another holder has it: %s", name, holderText(&other.Holder)))
}

// confirmBreak shows the holder and asks the user. It returns the owner id to break, and false
// if the lock is free.
func (a *App) confirmBreak(ctx context.Context, c *lock.Client, name, owner string) (_ string, held bool, _ error) {
	info, err := c.Inspect(ctx, name)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		info = lock.Info{Name: name}
	case err != nil:
		return "", false, err
	case info.Holder == nil:
		return "", false, nil
	case owner == "":
		owner = info.Holder.Owner
	case owner != info.Holder.Owner:
		return "", false, notBroken(name, &lock.LockedError{Holder: *info.Holder})
	}
	if !isTerminal(a.In) {
		return "", false, Usagef("break %q asks before it acts, and stdin is not a terminal: want --yes", name)
	}
	holder := "an unknown holder"
	if info.Holder != nil {
		holder = holderText(info.Holder)
	}
	fmt.Fprintf(a.messages, "%s is held by %s.\nBreak it? [y/N] ", quoted(name), holder)
	answer := make(chan string, 1)
	go func() { // a signal leaves it behind; then the process ends too
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return owner, true, nil
		}
		return "", false, WithCode(ExitFailed, fmt.Errorf("%q was not broken", name))
	case <-ctx.Done():
		fmt.Fprintln(a.messages)
		return "", false, context.Cause(ctx)
	}
}
