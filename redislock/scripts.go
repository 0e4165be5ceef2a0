package redislock

import (
	_ "embed"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// A script is the clock, its fast path, the common part, and its own part: a free lock, and the release and the renewal of a
// lock without waiters, return before the common part is run.
var (
	//go:embed lua/clock.lua
	luaClock string
	//go:embed lua/state.lua
	luaState string
	//go:embed lua/shares.lua
	luaShares string
	//go:embed lua/rule.lua
	luaRule string
	//go:embed lua/acquire_fast.lua
	luaAcquireFast string
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/renew_fast.lua
	luaRenewFast string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/renew_key.lua
	luaRenewKey string
	//go:embed lua/end_fast.lua
	luaEndFast string
	//go:embed lua/end.lua
	luaEnd string
	//go:embed lua/break.lua
	luaBreak string
	//go:embed lua/pass.lua
	luaPass string
	//go:embed lua/inspect.lua
	luaInspect string

	//go:embed lua/node_acquire.lua
	luaNodeAcquire string
	//go:embed lua/node_end.lua
	luaNodeEnd string
	//go:embed lua/mark.lua
	luaMark string
)

type scripts struct{ acquire, renew, renewKey, end, breaks, pass, inspect *protocol.Script }

var (
	theScripts  = newScripts("", "")
	nodeScripts = newScripts(luaNodeAcquire, luaNodeEnd) // of a node of a Redlock
	markScript  = protocol.Source(luaClock, luaMark)
)

// newScripts returns the scripts. acquire and end replace what those that grant and those that end grants do.
func newScripts(acquire, end string) *scripts {
	common := luaState + luaShares + luaRule
	s := &scripts{
		acquire:  protocol.Source(luaClock, acquire, luaAcquireFast, common, luaAcquire),
		renew:    protocol.Source(luaClock, end, luaRenewFast, common, luaRenew),
		renewKey: protocol.Source(luaClock, luaRenewKey),
		end:      protocol.Source(luaClock, end, luaEndFast, common, luaEnd),
		breaks:   protocol.Source(luaClock, end, common, luaBreak),
		pass:     protocol.Source(luaClock, common, luaPass),
		inspect:  protocol.Source(luaClock, common, luaInspect),
	}
	s.acquire.Acquires = true
	s.renew.FirstKey = s.renewKey
	return s
}

func (s *scripts) all() []*protocol.Script {
	return []*protocol.Script{s.acquire, s.renew, s.renewKey, s.end, s.breaks, s.pass, s.inspect}
}
