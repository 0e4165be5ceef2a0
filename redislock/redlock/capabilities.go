package redlock

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

func (s *service) capabilities(found server.Findings) backend.Capabilities {
	n := len(s.nodes)
	c := backend.Capabilities{
		Name:       "redlock",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossTTL,
		Order:      backend.Unordered,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingRestart,
		PushesLoss: true,
		MinTTL:     100 * time.Millisecond, // a third of it must outlast a round trip and a pause of the process
		MaxTTL:     s.opt.restartDelay,
		Lateness:   protocol.TombstoneTTL,
		Caveats: []string{
			fmt.Sprintf("%d of %d nodes must agree. At most one client holds a lock while no more than %d nodes lose their data, stop, are cut off or have their clocks stepped within a TTL. After a greater failure two clients may hold it, and only a check of the token at the resource protects.", s.need, n, n-s.need),
			"Numbers of commands are those at each node: every request goes to all nodes.",
			fmt.Sprintf("A node that restarted without its data has no vote for restart_delay, %v, which is also the longest TTL. Clients count it, and only while one is open: if all are short-lived, keep one open that asks again. All clients that share locks must use the same value. If all nodes lose their data at the same time, they count as a new set.", s.opt.restartDelay),
			"Tokens rise as long as a majority keeps its data, and otherwise as long as the nodes' clocks are not behind the time of the last grant.",
			"A release wakes one waiter of each process that waits, and the first that asks a majority gets the lock. A process that has released a lock asks for it again after the others had the time to.",
			"The clocks of the nodes must run at the same rate within 0.05 %, and agree within 1 s: a node whose clock differs has no vote, and none for restart_delay after a client has seen that. A step forward of less than 1 s, of a majority at the same time, or that no client notices before it is undone, ends leases early.",
			"A node refuses clients of another set of nodes: give all clients the same hosts, or the same set parameter.",
			"Simultaneous TryLock of several clients on a free key may refuse all of them.",
			"A program without this library that takes the same key at a majority excludes and is excluded. Its release wakes no waiter; waiters notice it within a second.",
			backend.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if s.opt.Durable {
		c.Caveats = append(c.Caveats, "The nodes are declared durable: a node that restarts without data that it had acknowledged (appendfsync is not always, a snapshot is restored) grants a held lock again.")
	}
	c.Caveats = append(c.Caveats, found.Caveats...)
	return c
}
