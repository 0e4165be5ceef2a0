package lockcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/interlock-go/lock"
)

func (a *App) inspectCommand() *Command {
	return &Command{
		Use:   "inspect NAME",
		Short: "Show the holder of a lock and its waiters",
		Long: `Show the holder of a lock and its waiters, in the order of the queue if the service
has one. A lock without a holder is free, whether or not it was ever used. The exit
code is 0 in both cases; --json has a holder that is null. In ZooKeeper the request writes
to the lock's node, to read the clock of the leader.`,
		Example: `  lockctl inspect nightly
  lockctl inspect nightly --json | jq .holder.token`,
		Args:     oneArg("lock's NAME"),
		Complete: a.completeName,
		Run: func(ctx context.Context, args []string) error {
			return a.withClient(ctx, func(ctx context.Context, c *lock.Client) error {
				info, err := c.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				return a.Result(info, func(w io.Writer) { writeInfo(w, info) })
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
	for n, waiter := range i.Waiters {
		fmt.Fprintf(w, "  %d. waits: %s\n", n+1, holderText(&lock.Holder{Contender: waiter}))
	}
}

func (a *App) pingCommand() *Command {
	return &Command{
		Use:   "ping",
		Short: "Measure a round trip to the service",
		Example: `  lockctl ping --url redis://localhost:6379/0
  lockctl ping --json | jq .round_trip_ns`,
		Run: func(ctx context.Context, _ []string) error { return a.withClient(ctx, a.ping) },
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
