package protocol

import (
	"context"
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1; no security depends on it
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Every script reads the server's clock once and replies {status, clock in us, ...}.
var (
	//go:embed lua/prelude.lua
	luaPrelude string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/renew_key.lua
	luaRenewKey string
	//go:embed lua/inspect.lua
	luaInspect string

	// LuaAbandon and LuaBreak have no prelude: Redlock inserts its own code after it.
	//
	//go:embed lua/abandon.lua
	LuaAbandon string
	//go:embed lua/break.lua
	LuaBreak string
)

// The scripts that never grant a key. RenewKey renews with the lock's key alone.
var (
	Renew    = NewScript(luaRenew)
	RenewKey = NewScript(luaRenewKey)
	Inspect  = NewScript(luaInspect)
)

// Script is a Lua script of the protocol.
type Script struct {
	Source, SHA string
	FirstKey    *Script // replaces the script while the slot migrates; uses the first key only; may be nil
}

func init() { Renew.FirstKey = RenewKey }

// NewScript returns the script that consists of the prelude and body.
func NewScript(body ...string) *Script {
	src := luaPrelude + strings.Join(body, "")
	sum := sha1.Sum([]byte(src)) //nolint:gosec // the name of a script on the server
	return &Script{Source: src, SHA: hex.EncodeToString(sum[:])}
}

// Once is a command that go-redis sends only once. A request can therefore arrive late
// only if the driver saw no reply to it; a tombstone refuses it then. go-redis still
// follows redirections: a redirected command was not executed.
type Once struct{ *redis.Cmd }

// NoRetry disables the retries of go-redis.
func (Once) NoRetry() bool { return true }

// Command returns the command that runs the script, by SHA or by source.
func (s *Script) Command(ctx context.Context, bySource bool, keys []string, args []any) Once {
	a := make([]any, 0, 3+len(keys)+len(args))
	if bySource {
		a = append(a, "eval", s.Source, len(keys))
	} else {
		a = append(a, "evalsha", s.SHA, len(keys))
	}
	for _, k := range keys {
		a = append(a, k)
	}
	return Once{redis.NewCmd(ctx, append(a, args...)...)}
}
