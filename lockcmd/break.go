package lockcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/interlock-go/lock"
)

type breakFlags struct {
	name  string // the argument
	owner string
	yes   bool
	limit serviceLimit
}

func (a *App) breakCommand() *Command {
	var f breakFlags
	flags := NewFlagSet()
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.Shorthand("y", "yes")
	flags.StringVar(&f.owner, "owner", "", "release it only if this owner id, as inspect -o json shows it, holds it")
	f.limit.addFlag(flags)
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
nothing and exits with 1. Of several readers or holders of permits --owner releases one;
without it break releases all.`,
		Example: `  lockctl break nightly
  lockctl break --yes --timeout 5s nightly`,
		Args:     oneArg("lock's NAME"),
		Complete: a.completeName,
		Flags:    flags,
		Run: func(ctx context.Context, args []string) error {
			f.name = args[0]
			return a.withClient(ctx, &f.limit, func(ctx context.Context, c *lock.Client) error { return a.breakLock(ctx, c, &f) })
		},
	}
}

func (a *App) breakLock(ctx context.Context, c *lock.Client, f *breakFlags) error {
	held := true
	if !f.yes {
		var err error
		if held, err = a.confirmBreak(ctx, c, f); err != nil {
			return err
		}
	}
	var opts []lock.BreakOption
	if f.owner != "" {
		opts = append(opts, lock.IfHeldBy(f.owner))
	}
	var removed *lock.Holder
	if held {
		if err := f.limit.within(ctx, func(ctx context.Context) (err error) {
			removed, err = c.Break(ctx, f.name, opts...)
			return err
		}); err != nil {
			return notBroken(f.name, err)
		}
	}
	result := struct {
		Name    string       `json:"name"`
		Removed *lock.Holder `json:"removed"`
	}{f.name, removed}
	return a.Result(result, func(w io.Writer) {
		if removed == nil {
			fmt.Fprintf(w, "%s: was free\n", quoted(f.name))
			return
		}
		fmt.Fprintf(w, "%s: taken from %s\n", quoted(f.name), holderText(removed))
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

// confirmBreak shows the holder, which becomes the owner to break, and asks the user. It
// returns false if the lock is free.
func (a *App) confirmBreak(ctx context.Context, c *lock.Client, f *breakFlags) (held bool, err error) {
	var info lock.Info
	err = f.limit.within(ctx, func(ctx context.Context) (err error) {
		info, err = c.Inspect(ctx, f.name)
		return err
	})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		info = lock.Info{Name: f.name}
	case err != nil:
		return false, err
	case info.Holder == nil:
		return false, nil
	case f.owner == "" && len(info.Others) == 0:
		f.owner = info.Holder.Owner
	case f.owner != "" && !slices.ContainsFunc(holders(&info), func(h lock.Holder) bool { return h.Owner == f.owner }):
		return false, notBroken(f.name, &lock.LockedError{Holder: *info.Holder})
	}
	if !isTerminal(a.In) {
		return false, Usagef("break %q asks before it acts, and stdin is not a terminal: want --yes", f.name)
	}
	var owners []string
	for _, h := range holders(&info) {
		if f.owner == "" || f.owner == h.Owner {
			owners = append(owners, holderText(&h))
		}
	}
	if len(owners) == 0 {
		owners = []string{"an unknown holder"}
	}
	fmt.Fprintf(a.messages, "%s is held by %s.\nBreak it? [y/N] ", quoted(f.name), strings.Join(owners, ", and by "))
	answer := make(chan string, 1)
	go func() { // a signal leaves it behind; then the process ends too
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		}
		return false, WithCode(ExitFailed, fmt.Errorf("%q was not broken", f.name))
	case <-ctx.Done():
		fmt.Fprintln(a.messages)
		return false, context.Cause(ctx)
	}
}
