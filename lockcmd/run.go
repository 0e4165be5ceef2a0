package lockcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/interlock-go/lock"
)

// runFlags are the flags of run and elect.
type runFlags struct {
	ttl       positive
	wait      waitLimit
	service   positive // wait limit for the service at the start; zero: not given
	minHold   optional
	grace     optional
	migrateTo string
	phase     string
	as        string
	share     share
}

func (a *App) runCommand() *Command {
	var f runFlags
	c := &Command{
		Use:   "run [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Wait for a lock, run a command while the lock is held, release the lock, and exit
with the command's code. The environment of the command contains

  LOCK_NAME    the name of the lock
  LOCK_TOKEN   the fencing token, greater than that of each earlier holder; not
               set if the service has none
  LOCK_OWNER   the random owner id, as "inspect" shows it
  LOCK_SLOTS   with --permits the numbers of the permits, from 0, such as "0,3"

and ` + envURL + ` unchanged. lockctl forwards signals to the command and its children, so
that Ctrl-C reaches them once. Ctrl-Z stops the command and lockctl, which then cannot
renew: if they continue after the lock was lost, the command is killed.

lockctl renews the lock every third of its TTL. If renewals fail until only the grace
period is left of the trusted time, or if the lock is broken, lockctl sends TERM to the
command and its children and, a grace period later, KILL. If the TTL ran out, they are
dead before the service can grant the lock to another client, even if they ignore TERM.
If lockctl itself is killed, the kernel kills the command on Linux (not its children); on
other systems the command continues. What continues does so without a lock, except with a
file: URL: the command and its children inherit the lock, and it is free when the last of
them has ended, as with flock(1). While lockctl lives, it frees the lock when the command
ends, whatever children the command leaves behind. If lockctl or the machine is
suspended, nothing can end the command in time: the resource that it writes to must
refuse a LOCK_TOKEN lower than the highest that it has seen.

--migrate-to moves the lock from one URL to another. All processes that use the lock
follow three phases; each begins when all processes have completed the one before: "old"
acquires the lock at --url, "both" at --url and then at --migrate-to, "new" at
--migrate-to. A process in "old" and one in "new" would be two holders. In "both" the
loss of either lock ends the command, whose environment contains LOCK_TOKEN_OLD,
LOCK_TOKEN_NEW, LOCK_OWNER_OLD and LOCK_OWNER_NEW instead: the resource must compare each
token with the greatest of its own kind.

Processes that the command leaves in the background have no lock. A process that has
become another user (sudo) cannot be ended: run "sudo lockctl run ...", not
"lockctl run ... -- sudo ...". Nor can one that leaves the process group, except on Linux.

If the service does not answer at the start, "run" fails; --wait-for-service repeats the
attempt until then, for a command that is started before its service.

With --read the command is one of any number of readers: a command without it, the
writer, excludes them. With --permits 2/10 it holds two of ten permits. Waiters are
served in order: a reader that comes after a waiting writer waits. Redlock and some
other services grant neither.

A stderr that is not read delays nothing: messages that cannot be written are dropped.

` + exitCodesHelp,
		Example: `  lockctl run nightly -- backup.sh
  lockctl run --wait 0 nightly -- backup.sh            # one attempt
  lockctl run --wait 10m --ttl 1m deploy -- make deploy
  lockctl run --wait-for-service 5m nightly -- backup.sh    # the service may start later
  lockctl run --min-hold 30s hourly -- report.sh       # once, though clocks differ
  lockctl run nightly -- sh -c 'echo token $LOCK_TOKEN'
  lockctl run --read catalog -- report.sh              # beside other readers
  lockctl run --permits 1/10 exports -- export.sh      # at most ten at a time
  lockctl run --url redis://r:6379/0 --migrate-to etcd://e:2379 --phase both nightly -- backup.sh`,
		Args:     runArgs,
		Complete: a.completeRun,
		Flags:    a.leaseFlags(&f),
		Run: func(ctx context.Context, args []string) error {
			t, err := a.newTask(&f, args[0], args[1:])
			if err != nil {
				return err
			}
			return t.runOnce(ctx)
		},
	}
	fl := c.Flags
	fl.hints = flockHints
	fl.Var(&f.wait, "wait", "wait limit, once the service has answered; 0 makes one attempt")
	fl.Var(&f.minHold, "min-hold", "keep the lock for at least this time, even if the command ends sooner")
	fl.BoolVar(&f.share.read, "read", false, "lock for reading, beside other readers")
	fl.Var(&f.share.permits, "permits", "hold K of N permits, such as 1/10")
	fl.StringVar(&f.migrateTo, "migrate-to", "", "URL that the lock moves to; needs --phase")
	fl.StringVar(&f.phase, "phase", "", "phase of the migration in this process: old, both or new")
	fl.Complete("migrate-to", CompleteURL)
	fl.Complete("phase", func() []string { return []string{"old", "both", "new"} })
	return c
}

// flockHints are for users who type the flags of flock(1).
var flockHints = map[string]string{
	"n": "want --wait 0", "nonblock": "want --wait 0",
	"w": "want --wait 10s", "timeout": "want --wait 10s",
	"x": "want no flag: a lock is exclusive without --read", "exclusive": "want no flag: a lock is exclusive without --read",
	"s": "want --read", "shared": "want --read",
	"u": "the lock is released when the command ends", "unlock": "the lock is released when the command ends",
}

// leaseFlags returns the flags that run and elect have in common.
func (a *App) leaseFlags(f *runFlags) *FlagSet {
	fl := NewFlagSet()
	fl.Var(&f.ttl, "ttl", "time for which the service keeps the lock without a renewal (default that of the URL, else 30s)")
	fl.Var(&f.grace, "grace", "time between TERM and KILL, at most half the TTL (default 5s, or a quarter of the TTL if less)")
	fl.StringVar(&f.as, "as", "", `description of the holder for other clients, such as an address (default "pid N on HOST")`)
	fl.Var(&f.service, "wait-for-service", "how long to wait at the start for the service")
	return fl
}

// runArgs requires NAME -- COMMAND. Without the "--", flags of the command would be
// taken for flags of the program.
func runArgs(_ *Command, args Args) error {
	const form = "want NAME -- COMMAND [ARGUMENT...]"
	switch {
	case len(args.List) == 0:
		return Usagef("no NAME and no command: %s", form)
	case args.Dash < 0:
		return Usagef(`no "--" between NAME and the command: %s`, form)
	case args.Dash != 1:
		return Usagef(`%d arguments before "--": %s`, args.Dash, form)
	case len(args.List) == 1:
		return Usagef(`no command after "--": %s`, form)
	}
	return nil
}

func (a *App) completeRun(ctx context.Context, args Args, word string) []string {
	if args.Dash >= 0 { // the command
		return []string{completeFiles}
	}
	return a.completeName(ctx, args, word)
}

// notAcquired replaces the text of err if another client holds the lock.
func notAcquired(name string, wait waitLimit, err error) error {
	var locked *lock.LockedError
	if codeOf(err) != ExitNotAcquired || !errors.As(err, &locked) {
		return err
	}
	text := fmt.Sprintf("%q is held by %s", name, holderText(&locked.Holder))
	if wait.d > 0 {
		text = fmt.Sprintf("%q was not acquired within %v: when the wait began it was held by %s", name, wait.d, holderText(&locked.Holder))
	}
	return WithCode(ExitNotAcquired, &rewordedError{text, err})
}

// rewordedError is an error with another text.
type rewordedError struct {
	text string
	err  error
}

func (e *rewordedError) Error() string { return e.text }
func (e *rewordedError) Unwrap() error { return e.err }
