package lockcmd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff of a candidate after a loss or without an answer: doubled each time, until a
// term has lasted for longer than maxBackoff.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
)

func (a *App) electCommand() *Command {
	var f runFlags
	return &Command{
		Use:   "elect [flags] NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command on one node at a time, while that node leads",
		Long: `Campaign for the lock of a name, and run a command while leading. Start it on each
node: one node leads and the others wait. When the leader ends, dies or loses the lock,
the next node leads.

  - The command ends: the leader releases the lock and exits with the command's code.
  - A signal comes: it is forwarded to the command, whose end is handled as above.
    Without a running command it ends lockctl.
  - The lock is lost: lockctl ends the command and its children as "run" does, before
    another node can lead, and campaigns again. If the command must not run again, use
    "run".
  - The service does not answer, also at the start: lockctl tries again, with a backoff
    of up to ` + maxBackoff.String() + `. With --wait-for-service it ends with code 69 if the service has not
    answered once within that time.

The environment of the command is that of "run". "inspect" shows the leader: set --as to
the address at which the leader can be reached.

` + exitCodesHelp,
		Example: `  lockctl elect scheduler -- ./scheduler
  lockctl elect --as 10.0.0.7:8080 --ttl 10s api-primary -- ./api --primary
  lockctl inspect api-primary -o json | jq -r .holder.metadata    # the leader's address
  lockctl elect --url etcd://e1:2379,e2:2379 scheduler -- ./scheduler`,
		Args:     runArgs,
		Complete: a.completeRun,
		Flags:    a.leaseFlags(&f),
		Run: func(ctx context.Context, args []string) error {
			t, err := a.newTask(&f, args[0], args[1:])
			if err != nil {
				return err
			}
			return t.elect(ctx)
		},
	}
}

// elect runs the command in one term after another.
func (t *task) elect(ctx context.Context) error {
	sigs := listen()
	defer sigs.stop()
	released := true
	defer func() {
		if released { // else the end of this process must suffice
			t.closeClients()
		}
	}()
	backoff := minBackoff
	for {
		began := time.Now()
		var result error
		result, released = t.electOnce(ctx, sigs)
		code := codeOf(result)
		neverUp := t.mutex == nil && t.f.service > 0
		if neverUp || !retryable(result) || sigs.forwarded || !isOwnError(result) || code != ExitLost && code != ExitUnavailable && code != ExitNotAcquired {
			return result
		}
		if time.Since(began) > maxBackoff {
			backoff = minBackoff
		}
		t.Notice("campaign", fmt.Sprintf("%v; campaigning for %q again", result, t.name), map[string]any{"name": t.name, "reason": reason(code)})
		if err := sleepUntilSignal(ctx, sigs, backoff/2+rand.N(backoff/2)); err != nil {
			return err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// electOnce campaigns and leads for one term. The first call opens the clients.
func (t *task) electOnce(ctx context.Context, sigs *signals) (result error, released bool) {
	waiting, stop := sigs.bound(ctx)
	defer stop()
	if t.mutex == nil {
		if err := t.openWithin(waiting); err != nil {
			return interrupted(waiting, err), true
		}
	}
	return t.term(waiting, stop, sigs)
}

// sleepUntilSignal waits for d. It returns an error if a signal comes first.
func sleepUntilSignal(ctx context.Context, sigs *signals, d time.Duration) error {
	waiting, stop := sigs.bound(ctx)
	defer stop()
	select {
	case <-time.After(d):
		return nil
	case <-waiting.Done():
		return interrupted(waiting, context.Cause(waiting))
	}
}
