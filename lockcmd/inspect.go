package lockcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/interlock-go/lock"
)

func (a *App) inspectCommand() *Command {
	var held bool
	var limit serviceLimit
	flags := NewFlagSet()
	flags.BoolVar(&held, "held", false, "exit with 0 if the lock is held and 1 if it is free")
	limit.addFlag(flags)
	return &Command{
		Use:   "inspect NAME",
		Short: "Show the holder of a lock and its waiters",
		Long: `Show the holder of a lock and its waiters, in the order of the queue if the service
has one. A lock of readers or of permits may have several holders. A lock without a
holder is free, whether or not it was ever used; -o json has a holder that is null. The
exit code is 0 in both cases; with --held it is 0 if the lock is held and 1 if it is
free. An error has a code of its own: 64 or 69. In ZooKeeper the request writes to the
lock's node, to read the clock of the leader.`,
		Example: `  lockctl inspect nightly
  lockctl inspect nightly -o json | jq .holder.token
  lockctl inspect --held nightly >/dev/null; case $? in 0) echo held;; 1) echo free;; esac`,
		Flags:    flags,
		Args:     oneArg("lock's NAME"),
		Complete: a.completeName,
		Run: func(ctx context.Context, args []string) error {
			return a.query(ctx, &limit, func(ctx context.Context, c *lock.Client) error {
				info, err := c.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				err = a.Result(info, func(w io.Writer) { writeInfo(w, info) })
				if err == nil && held && info.Holder == nil {
					err = exitStatus(ExitFailed)
				}
				return err
			})
		},
	}
}

func writeInfo(w io.Writer, i lock.Info) {
	if i.Holder == nil {
		fmt.Fprintf(w, "%s: free\n", quoted(i.Name))
	} else {
		fmt.Fprintf(w, "%s: held by %s\n", quoted(i.Name), holderText(i.Holder))
	}
	for _, h := range i.Others {
		fmt.Fprintf(w, "  and by %s\n", holderText(&h))
	}
	for n, waiter := range i.Waiters {
		fmt.Fprintf(w, "  %d. waits: %s\n", n+1, holderText(&lock.Holder{Contender: waiter}))
	}
}

func (a *App) pingCommand() *Command {
	var limit serviceLimit
	flags := NewFlagSet()
	limit.addFlag(flags)
	return &Command{
		Use:   "ping",
		Short: "Measure a round trip to the service",
		Example: `  lockctl ping --url redis://localhost:6379/0
  lockctl ping --timeout 1s
  lockctl ping -o json | jq .round_trip_ns`,
		Flags: flags,
		Run:   func(ctx context.Context, _ []string) error { return a.query(ctx, &limit, a.ping) },
	}
}

func (a *App) ping(ctx context.Context, c *lock.Client) error {
	if err := c.Ping(ctx); err != nil { // the first may have to connect
		return err
	}
	sent := time.Now()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	took := time.Since(sent)
	name := c.Capabilities().Name
	reply := struct {
		Backend   string        `json:"backend"`
		RoundTrip time.Duration `json:"round_trip_ns"`
	}{name, took}
	return a.Result(reply, func(w io.Writer) { fmt.Fprintf(w, "%s: %s\n", name, round(took)) })
}
