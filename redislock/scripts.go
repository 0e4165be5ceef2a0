package redislock

import (
	_ "embed"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// A script is the clock, its fast path, the state, the rule, and its own part: a free lock, and the release and the renewal of
// a lock without waiters, return before the state is read.
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
	s := &scripts{
		acquire:  protocol.Source(luaClock, acquire, luaAcquireFast, withRule(luaAcquire)),
		renew:    protocol.Source(luaClock, end, luaRenewFast, withRule(luaRenew)),
		renewKey: protocol.Source(luaClock, luaRenewKey),
		end:      protocol.Source(luaClock, end, luaEndFast, withRule(luaEnd)),
		breaks:   protocol.Source(luaClock, end, withRule(luaBreak)),
		pass:     protocol.Source(luaClock, withRule(luaPass)),
		inspect:  protocol.Source(luaClock, withRule(luaInspect)),
	}
	s.acquire.Acquires = true
	s.renew.FirstKey = s.renewKey
	return s
}

// withRule returns an operation behind the state and the rule. The rule is in a function of its own, because Lua finds what a
// function uses of the state faster from there: with waiters, a script takes 8 % less time.
func withRule(operation string) string {
	return luaState + "return (function()\n" + luaShares + luaRule + operation + "end)()\n"
}

func (s *scripts) all() []*protocol.Script {
	return []*protocol.Script{s.acquire, s.renew, s.renewKey, s.end, s.breaks, s.pass, s.inspect}
}
