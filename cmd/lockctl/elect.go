package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
)

// A candidate that has lost, or whom the service did not answer, pauses before it
// campaigns again: twice as long each time, until a term has lasted for longer than
// the most.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
)

func (a *app) electCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "elect [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command on one node at a time, for as long as that node leads",
		Long: `Campaign for the lock of a name, and run a command while leading. Start it on
every node: one leads, the others wait; when the leader ends, dies or loses the
lock, the next leads.

  - The command ends by itself: the leader resigns, and exits with its code.
  - A signal is passed on to the command; when that ends, the same. While nothing
    runs yet it ends lockctl.
  - The lock is lost: the command and its children are ended as "run" does it, dead
    before another can lead, and lockctl campaigns again. For a command that should
    not be run again use "run".
  - The service does not answer: lockctl tries again, with pauses up to ` + mostPause.String() + `.

The command's environment is that of "run". Who leads is told by "inspect": say with
--as how the leader can be reached.

` + exitCodesHelp,
		Example: `  lockctl elect scheduler -- ./scheduler
  lockctl elect --as 10.0.0.7:8080 --ttl 10s api-primary -- ./api --primary
  lockctl inspect api-primary --json | jq -r .holder.metadata    # the leader's address
  lockctl elect --url etcd://e1:2379,e2:2379 scheduler -- ./scheduler`,
		Args:              runArgs,
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.newTask(&f, args[0], args[1:])
			if err != nil {
				return err
			}
			return t.elect(cmd.Context())
		},
	}
	a.holdFlags(c.Flags(), &f)
	return c
}

// elect runs the command in one term after the other.
func (t *task) elect(ctx context.Context) error {
	sigs := listen()
	defer sigs.stop()
	orderly := true
	defer func() {
		if orderly { // else the end of this process is enough
			t.close()
		}
	}()
	pause := leastPause
	for {
		waiting, stop := sigs.bound(ctx)
		began := time.Now()
		var result error
		if t.mutex == nil {
			if err := t.open(waiting); err != nil {
				stop()
				return interrupted(waiting, err)
			}
		}
		result, orderly = t.term(waiting, stop, sigs)
		stop()
		code := codeOf(result)
		if sigs.deadly || !isFailure(result) && !isLockError(result) || code != codeLost && code != codeUnavailable && code != codeNotAcquired {
			return result
		}
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		t.notice("campaign", fmt.Sprintf("%v; campaigning for %q again", result, t.name), map[string]any{"name": t.name, "reason": reason(code)})
		if err := t.rest(ctx, sigs, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		pause = min(2*pause, mostPause)
	}
}

// rest waits, unless a signal comes.
func (t *task) rest(ctx context.Context, sigs *signals, d time.Duration) error {
	waiting, stop := sigs.bound(ctx)
	defer stop()
	select {
	case <-time.After(d):
		return nil
	case <-waiting.Done():
		return interrupted(waiting, context.Cause(waiting))
	}
}
