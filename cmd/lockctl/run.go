package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/interlock-go/lock"
)

// runFlags are the flags of run, and of elect as far as it has them.
type runFlags struct {
	ttl       positive
	wait      waitFor
	minHold   optional
	grace     optional
	migrateTo string
	phase     string
	as        string
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Wait for a lock, run a command while it is held, free it, and exit with the
command's code. The command finds in its environment

  LOCK_NAME    the lock's name
  LOCK_TOKEN   the fencing token, greater than that of every earlier holder; not
               set if the service has none
  LOCK_OWNER   the random id of this hold, as "inspect" shows it

and ` + envURL + ` as it was. Signals are passed on to the command and its children:
Ctrl-C reaches them once. Ctrl-Z stops the command and lockctl, which then cannot
renew: when continued after the lock was lost, the command is killed instead.

The lock is renewed each third of its TTL. If that fails for so long that only
the grace is left of the time for which the lock is certain, or if the lock is
broken, the command and its children get TERM and, a grace later, KILL: they are
dead before anybody else can be granted a lock whose TTL ran out, even if they
ignore TERM. If lockctl itself is killed, the kernel kills the command on Linux
(not what the command has started); elsewhere the command goes on without a lock.
If lockctl or the whole machine is suspended, nothing can end the command in time:
have what it writes to refuse a LOCK_TOKEN lower than the highest it has seen.

With --migrate-to the lock is on its way from one place to another, which every
process that uses it follows in three phases, each begun when the one before is
complete everywhere: "old" takes the lock at --url alone, "both" takes it at --url and
then at --migrate-to, "new" at --migrate-to alone. Old and new at the same time would be
two holders. In "both" a loss of either ends the command, which finds LOCK_TOKEN_OLD,
LOCK_TOKEN_NEW, LOCK_OWNER_OLD and LOCK_OWNER_NEW in its environment instead: have what it
writes to check each token against the greatest of its own kind.

What the command leaves running in the background when it ends has no lock. What
leaves its process group, or has become another user (sudo), cannot be ended: run
"sudo lockctl run ...", not "lockctl run ... -- sudo ...".

` + exitCodesHelp,
		Example: `  lockctl run nightly -- backup.sh
  lockctl run --wait 0 nightly -- backup.sh            # not now? then not at all
  lockctl run --wait 10m --ttl 1m deploy -- make deploy
  lockctl run --min-hold 30s hourly -- report.sh       # not twice if clocks differ
  lockctl run nightly -- sh -c 'echo token $LOCK_TOKEN'
  lockctl run --url redis://r:6379/0 --migrate-to etcd://e:2379 --phase both nightly -- backup.sh`,
		Args:              runArgs,
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.newTask(&f, args[0], args[1:])
			if err != nil {
				return err
			}
			return t.runOnce(cmd.Context())
		},
	}
	fl := c.Flags()
	a.holdFlags(fl, &f)
	fl.Var(&f.wait, "wait", "how long to wait for the lock once the service has answered; 0 makes one attempt")
	fl.Var(&f.minHold, "min-hold", "keep others out for at least so long, even if the command ends sooner")
	fl.StringVar(&f.migrateTo, "migrate-to", "", "where the lock is on its way to; needs --phase")
	fl.StringVar(&f.phase, "phase", "", "how far the migration has come here: old, both or new")
	_ = c.RegisterFlagCompletionFunc("migrate-to", completeURL)
	_ = c.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions([]string{"old", "both", "new"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// holdFlags are the flags of all that run a command under a lock.
func (a *app) holdFlags(fl *pflag.FlagSet, f *runFlags) {
	fl.Var(&f.ttl, "ttl", "how long the service keeps the lock without a renewal (default that of the URL, else 30s)")
	fl.Var(&f.grace, "grace", "between TERM and KILL, at most half the TTL (default 5s, or a quarter of the TTL if less)")
	fl.StringVar(&f.as, "as", "", `what others see of the holder, such as an address (default "pid N on HOST")`)
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "do not say who is waited for")
}

// runArgs wants NAME -- COMMAND. The "--" is not optional: without it a flag of
// the command would be taken for one of lockctl.
func runArgs(cmd *cobra.Command, args []string) error {
	const form = "want NAME -- COMMAND [ARGUMENT...]"
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0:
		return usagef("no NAME and no command: %s", form)
	case dash < 0:
		return usagef(`no "--" between NAME and the command: %s`, form)
	case dash != 1:
		return usagef(`%d arguments before "--": %s`, dash, form)
	case len(args) == 1:
		return usagef(`no command after "--": %s`, form)
	}
	return nil
}

func (a *app) completeRun(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	if cmd.ArgsLenAtDash() >= 0 {
		return nil, cobra.ShellCompDirectiveDefault // the command's: files
	}
	return a.completeName(cmd, args, s)
}

// notAcquired says in the user's words why there is no lock, if it is because
// somebody else has it.
func notAcquired(name string, wait waitFor, err error) error {
	var locked *lock.LockedError
	if codeOf(err) != codeNotAcquired || !errors.As(err, &locked) {
		return err
	}
	text := fmt.Sprintf("%q is held by %s", name, holderText(&locked.Holder))
	if wait.d > 0 {
		text = fmt.Sprintf("%q was not acquired within %v: when the wait began it was held by %s", name, wait.d, holderText(&locked.Holder))
	}
	return &failure{codeNotAcquired, &explained{text, err}}
}

// explained is an error in other words.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }
