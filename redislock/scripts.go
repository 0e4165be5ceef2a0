package redislock

import (
	_ "embed"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

var (
	//go:embed lua/ask.lua
	luaAsk string
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/downgrade.lua
	luaDowngrade string

	acquireScript   = protocol.NewSharing(protocol.SharingAcquire, luaAsk+luaAcquire)
	releaseScript   = protocol.NewSharing(protocol.SharingRelease, luaRelease)
	downgradeScript = protocol.NewSharing(protocol.SharingAlways, luaDowngrade)
	abandonScript   = protocol.NewSharing(protocol.SharingAlways, protocol.LuaAbandon)
	breakScript     = protocol.NewSharing(protocol.SharingAlways, protocol.LuaBreak)
	advanceScript   = protocol.NewSharing(protocol.SharingAlways, protocol.LuaAdvance)

	scripts = []*protocol.Script{
		acquireScript, protocol.Renew, protocol.RenewKey, releaseScript, abandonScript, breakScript,
		protocol.Inspect, advanceScript, downgradeScript,
	}
)

func init() { acquireScript.Acquires = true }
