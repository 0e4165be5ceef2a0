package redislock

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by it; it protects nothing
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The protocol. Every script reads the server's clock once and answers
// {status, server's microseconds, ...}.
var (
	//go:embed lua/prelude.lua
	luaPrelude string
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/hold.lua
	luaHold string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/abandon.lua
	luaAbandon string
	//go:embed lua/break.lua
	luaBreak string
	//go:embed lua/inspect.lua
	luaInspect string

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

	acquireScript = newScript(luaAcquire)
	renewScript   = newScript(luaRenew)
	holdScript    = newScript(luaHold)
	releaseScript = newScript(luaRelease)
	abandonScript = newScript(luaAbandon)
	breakScript   = newScript(luaBreak)
	inspectScript = newScript(luaInspect)

	scripts = []*script{acquireScript, renewScript, holdScript, releaseScript, abandonScript, breakScript, inspectScript}
)

type script struct {
	src, sha string
	lone     *script // does with the first key what it can, where those of a slot are being moved
}

func init() { renewScript.lone = holdScript }

func newScript(body ...string) *script {
	src := luaPrelude + strings.Join(body, "")
	sum := sha1.Sum([]byte(src)) //nolint:gosec // the server's own name for a script
	return &script{src: src, sha: hex.EncodeToString(sum[:])}
}

// Statuses of replies.
const (
	wrongType = -2
	abandoned = -1
	no        = 0
	yes       = 1
)

// reply is what a script answered.
type reply struct {
	status int64
	us     int64 // the server's clock
	rest   []any
	sent   time.Time // before the request was sent
}

func parseReply(v any, sent time.Time) (reply, error) {
	l, ok := v.([]any)
	if !ok || len(l) < 2 {
		return reply{}, fmt.Errorf("unexpected reply of a script: %.100q", fmt.Sprint(v))
	}
	r := reply{sent: sent, rest: l[2:]}
	if r.status, ok = l[0].(int64); !ok {
		return reply{}, fmt.Errorf("unexpected status of a script: %.100q", fmt.Sprint(l[0]))
	}
	r.us = number(l[1])
	return r, nil
}

func (r reply) str(i int) string {
	if i >= len(r.rest) {
		return ""
	}
	s, _ := r.rest[i].(string)
	return s
}

func (r reply) num(i int) int64 {
	if i >= len(r.rest) {
		return 0
	}
	return number(r.rest[i])
}

func (r reply) token() uint64 { return uint64(max(r.num(1), 0)) }

// left is the remaining time of a key; negative if it does not expire.
func (r reply) left() time.Duration { return ofMillis(r.num(0)) }

// ofMillis bounds what a foreign client may have set, so that there is room to add.
func ofMillis(ms int64) time.Duration {
	return time.Duration(min(ms, int64(10*maxTTL/time.Millisecond))) * time.Millisecond
}

func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64) // the scripts write numbers only
		return n
	}
	return 0
}

// millis rounds up: a lease must not be shorter than asked for.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
