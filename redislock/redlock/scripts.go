package redlock

import (
	_ "embed"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

var (
	//go:embed lua/quorum.lua
	luaQuorum string
	//go:embed lua/quorum_acquire.lua
	luaQuorumAcquire string
	//go:embed lua/quorum_yield.lua
	luaQuorumYield string
	//go:embed lua/quorum_release.lua
	luaQuorumRelease string
	//go:embed lua/quorum_fence.lua
	luaQuorumFence string
	//go:embed lua/quorum_found.lua
	luaQuorumFound string
)

// The scripts that may grant check whether their node has a vote. The others are those of
// a single server.
var (
	quorumAcquire = protocol.NewScript(luaQuorum, luaQuorumAcquire)
	quorumYield   = protocol.NewScript(luaQuorum, luaQuorumYield)
	quorumRelease = protocol.NewScript(luaQuorum, luaQuorumRelease)
	quorumFence   = protocol.NewScript(luaQuorum, luaQuorumFence)
	quorumFound   = protocol.NewScript(luaQuorum, luaQuorumFound)
	quorumAbandon = protocol.NewScript(luaQuorum, protocol.LuaAbandon)
	quorumBreak   = protocol.NewScript(luaQuorum, protocol.LuaBreak)
	quorumAdvance = protocol.NewScript(luaQuorum, protocol.LuaAdvance)

	quorumScripts = []*protocol.Script{
		quorumAcquire, quorumYield, quorumRelease, quorumFence, quorumFound, quorumAbandon, quorumBreak, quorumAdvance,
		protocol.Renew, protocol.Inspect,
	}
)

// Statuses of a node that does not vote.
const (
	otherSet    = -5 // the node belongs to another set of nodes
	quarantined = -4 // the node may have lost grants
	late        = -3 // the request arrived too late
)
