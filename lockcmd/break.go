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

On a terminal, break shows the holder, or all of several readers or holders of permits,
and asks. It then releases the lock of those that it has shown and that still have it,
and of no other holder. Elsewhere --yes is required, which releases the lock of any
holders, unless --owner names one. If only other holders have the lock, break changes
nothing and exits with 1.`,
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
	owners := []string{f.owner} // empty: any
	if !f.yes {
		var err error
		if owners, err = a.confirmBreak(ctx, c, f); err != nil {
			return err
		}
	}
	var removed []*lock.Holder
	var other error // the holder of owner has left, and another one has the lock
	for _, owner := range owners {
		h, err := f.breakOne(ctx, c, owner)
		var locked *lock.LockedError
		switch {
		case errors.As(err, &locked):
			other = notBroken(f.name, locked)
		case err != nil:
			return err
		case h != nil:
			removed = append(removed, h)
		}
	}
	if len(removed) == 0 && other != nil {
		return other
	}
	result := struct {
		Name    string         `json:"name"`
		Removed *lock.Holder   `json:"removed"`
		Others  []*lock.Holder `json:"others,omitempty"`
	}{Name: f.name}
	if len(removed) > 0 {
		result.Removed, result.Others = removed[0], removed[1:]
	}
	return a.Result(result, func(w io.Writer) {
		if len(removed) == 0 {
			fmt.Fprintf(w, "%s: was free\n", quoted(f.name))
		}
		for _, h := range removed {
			fmt.Fprintf(w, "%s: taken from %s\n", quoted(f.name), holderText(h))
		}
	})
}

// breakOne releases the lock if owner holds it, of any holder if owner is empty.
func (f *breakFlags) breakOne(ctx context.Context, c *lock.Client, owner string) (removed *lock.Holder, err error) {
	var opts []lock.BreakOption
	if owner != "" {
		opts = append(opts, lock.IfHeldBy(owner))
	}
	err = f.limit.within(ctx, func(ctx context.Context) (err error) {
		removed, err = c.Break(ctx, f.name, opts...)
		return err
	})
	return removed, err
}

// notBroken returns the answer that another holder has the lock.
func notBroken(name string, other *lock.LockedError) error {
	return WithCode(ExitFailed, fmt.Errorf("%q was not broken: another holder has it: %s", name, holderText(&other.Holder)))
}

// confirmBreak shows the holders, or the one of the flag --owner, and asks the user. It returns the owner ids of those
// that it has shown, an empty one if they cannot be known, and none if the lock is free.
func (a *App) confirmBreak(ctx context.Context, c *lock.Client, f *breakFlags) (shown []string, err error) {
	var info lock.Info
	err = f.limit.within(ctx, func(ctx context.Context) (err error) {
		info, err = c.Inspect(ctx, f.name)
		return err
	})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		info = lock.Info{Name: f.name}
	case err != nil:
		return nil, err
	case info.Holder == nil:
		return nil, nil
	case f.owner != "" && !slices.ContainsFunc(holders(&info), func(h lock.Holder) bool { return h.Owner == f.owner }):
		return nil, notBroken(f.name, &lock.LockedError{Holder: *info.Holder})
	}
	if !isTerminal(a.In) {
		return nil, Usagef("break %q asks before it acts, and stdin is not a terminal: want --yes", f.name)
	}
	var texts []string
	for _, h := range holders(&info) {
		if f.owner == "" || f.owner == h.Owner {
			shown, texts = append(shown, h.Owner), append(texts, holderText(&h))
		}
	}
	if len(texts) == 0 {
		shown, texts = []string{f.owner}, []string{"an unknown holder"}
	}
	fmt.Fprintf(a.messages, "%s is held by %s.\nBreak it? [y/N] ", quoted(f.name), strings.Join(texts, ", and by "))
	answer := make(chan string, 1)
	go func() { // a signal leaves it behind; then the process ends too
		line, _ := bufio.NewReader(a.In).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return shown, nil
		}
		return nil, WithCode(ExitFailed, fmt.Errorf("%q was not broken", f.name))
	case <-ctx.Done():
		fmt.Fprintln(a.messages)
		return nil, context.Cause(ctx)
	}
}
