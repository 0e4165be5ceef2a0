// Package wire defines what Redlock stores at a node and exchanges with it: scripts, replies and messages.
package wire

import (
	_ "embed"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Every script begins with the prelude, which reads the clock of the node, and replies {status, clock in us, ...}.
var (
	//go:embed lua/prelude.lua
	luaPrelude string
	//go:embed lua/quorum.lua
	luaQuorum string
	//go:embed lua/quorum_acquire.lua
	luaAcquire string
	//go:embed lua/quorum_yield.lua
	luaYield string
	//go:embed lua/quorum_release.lua
	luaRelease string
	//go:embed lua/quorum_fence.lua
	luaFence string
	//go:embed lua/quorum_found.lua
	luaFound string
	//go:embed lua/abandon.lua
	luaAbandon string
	//go:embed lua/break.lua
	luaBreak string
	//go:embed lua/advance.lua
	luaAdvance string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/inspect.lua
	luaInspect string
)

// The scripts that may grant check whether their node has a vote.
var (
	Acquire = voting(luaAcquire)
	Yield   = voting(luaYield)
	Release = voting(luaRelease)
	Fence   = voting(luaFence)
	Found   = voting(luaFound)
	Abandon = voting(luaAbandon)
	Break   = voting(luaBreak)
	Advance = voting(luaAdvance)
)

// The scripts that never grant.
var (
	Renew   = protocol.Source(luaPrelude, luaRenew)
	Inspect = protocol.Source(luaPrelude, luaInspect)
)

func voting(body string) *protocol.Script { return protocol.Source(luaPrelude, luaQuorum, body) }

// Scripts returns all scripts.
func Scripts() []*protocol.Script {
	return []*protocol.Script{Acquire, Yield, Release, Fence, Found, Abandon, Break, Advance, Renew, Inspect}
}
