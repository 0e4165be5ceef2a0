package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// app is what all commands share.
type app struct {
	*output
	url    string
	getenv func(string) string
}

// execute runs lockctl with arguments and returns its exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := &app{output: &output{streams: s}, getenv: os.Getenv}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var status exitStatus
	if err == nil || errors.As(err, &status) {
		return codeOf(err)
	}
	code := codeOf(err)
	fields := map[string]any{"code": code, "reason": reason(code)}
	if locked := (*lock.LockedError)(nil); errors.As(err, &locked) {
		fields["holder"] = locked.Holder
	}
	a.say("error", strings.TrimPrefix(err.Error(), "lock: "), fields)
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lockctl",
		Short: "Run commands under a distributed lock, and look after locks",
		Long: `lockctl runs a command while it holds a lock that excludes every other process
which asks for the same name in the same place, and shows who holds what.

The place is a URL, given by --url or by the variable ` + envURL + `:

  file:///var/lib/locks                 the processes of this machine
  redis://user:password@host:6379/0     everybody who reaches the server
  rediss://...  redis+sentinel://...  redis+cluster://...
  redlock://host1,host2,host3,...       a majority of independent Redis servers
  etcd://host:2379  etcds://...         the same, by consensus
  postgres://user@host/database         everybody who reaches the database
  mysql://user@host/database            the same, MySQL or MariaDB
  zk://host1:2181,host2:2181/chroot     the same, by consensus

Without one it is a folder of the user: $XDG_STATE_HOME/interlock, or
~/.local/state/interlock. Prefer ` + envURL + ` for a URL with a password: arguments can
be seen by every user of the machine.`,
		Example: `  lockctl run nightly -- backup.sh
  lockctl run --url redis://localhost:6379/0 --wait 10s nightly -- backup.sh
  lockctl elect scheduler -- ./scheduler
  lockctl list --json
  lockctl top
  lockctl demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q: want one of %s", args[0], commandNames(cmd))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetIn(a.in)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", redacted{err}, cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.url, "url", "", "where the locks are kept (default $"+envURL+", else a folder of the user)")
	f.BoolVar(&a.json, "json", false, "speak JSON: results on stdout; messages and errors on stderr, one a line")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log on stderr what happens to the lock")
	_ = root.RegisterFlagCompletionFunc("url", completeURL)
	root.PersistentPreRun = func(*cobra.Command, []string) { quietRedis(a.logger()) }
	root.AddCommand(
		a.runCommand(), a.electCommand(), a.inspectCommand(), a.listCommand(), a.watchCommand(), a.topCommand(),
		a.breakCommand(), a.pingCommand(), a.benchCommand(), a.demoCommand(), a.schemaCommand(), a.conformanceCommand(),
		a.manCommand(), a.versionCommand(),
	)
	// cobra's own, here and not when they are run, so that they have examples and pages too
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  lockctl help run"
		case "completion":
			c.Example = `  source <(lockctl completion bash)
  lockctl completion zsh > "${fpath[1]}/_lockctl"
  lockctl completion fish > ~/.config/fish/completions/lockctl.fish`
		}
	}
	return root
}

func commandNames(root *cobra.Command) string {
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	return strings.Join(names, ", ")
}

// open opens the client of the chosen URL.
func (a *app) open(ctx context.Context, opts ...lock.Option) (*lock.Client, error) {
	u, err := chooseURL(a.url, a.getenv)
	if err != nil {
		return nil, err
	}
	return a.openURL(ctx, u, opts...)
}

func (a *app) openURL(ctx context.Context, u string, opts ...lock.Option) (*lock.Client, error) {
	if log := a.logger(); log != nil {
		log.Debug("opening", "url", display(u))
		opts = append(opts, lock.WithLogger(log))
	}
	return lock.Open(ctx, u, opts...)
}

// with opens a client for one operation.
func (a *app) with(ctx context.Context, f func(context.Context, *lock.Client) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	c, err := a.open(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	err = f(ctx, c)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if cerr := c.Close(closing); err == nil {
		err = cerr
	}
	return interrupted(ctx, err)
}

// closeTimeout bounds how long lockctl waits, at its end, for a service to
// acknowledge what it has been told.
const closeTimeout = 5 * time.Second

// oneName is the Args of the commands about one lock.
func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%d arguments for %s: want one, the lock's NAME", len(args), cmd.CommandPath())
	}
	return nil
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 0 {
		return usagef("unexpected argument %q: %s takes none", args[0], cmd.CommandPath())
	}
	return nil
}

// completeURL offers the schemes that are linked in, each as far as its host or path.
func completeURL(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, s := range backend.Schemes() {
		form := s + "://"
		if s == "file" {
			form += "/"
		}
		out = append(out, form)
	}
	return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// completeName offers the names of the locks that are held, for the one argument.
func (a *app) completeName(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeNames(cmd, args, s)
}

// completeNames offers those that are not among the arguments yet. A name that a
// terminal or the protocol of completion would mangle is left out.
func (a *app) completeNames(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	c, err := a.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer func() { _ = c.Close(ctx) }()
	var names []string
	held, _ := heldLocks(ctx, c, s) // those that came before an error are better than none
	for _, info := range held {
		if printable(info.Name) && !slices.Contains(args, info.Name) {
			names = append(names, info.Name+"\t"+fmt.Sprintf("held by %s", holderText(info.Holder)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
