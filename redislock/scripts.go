package redislock

import (
	_ "embed"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

var (
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/release.lua
	luaRelease string

	acquireScript = protocol.NewScript(luaAcquire)
	releaseScript = protocol.NewScript(luaRelease)
	abandonScript = protocol.NewScript(protocol.LuaAbandon)
	breakScript   = protocol.NewScript(protocol.LuaBreak)
	advanceScript = protocol.NewScript(protocol.LuaAdvance)

	scripts = []*protocol.Script{
		acquireScript, protocol.Renew, protocol.RenewKey, releaseScript, abandonScript, breakScript,
		protocol.Inspect, advanceScript,
	}
)

func init() { acquireScript.Acquires = true }
