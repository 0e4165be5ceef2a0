package protocol

import (
	"context"
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1; no security depends on it
	_ "embed"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Every script reads the server's clock once and replies {status, clock in us, ...}.
var (
	//go:embed lua/prelude.lua
	luaPrelude string
	//go:embed lua/share.lua
	luaShare string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/renew_key.lua
	luaRenewKey string
	//go:embed lua/inspect.lua
	luaInspect string

	// LuaAbandon, LuaBreak and LuaAdvance have no prelude: Redlock inserts its own code after it.
	//
	//go:embed lua/abandon.lua
	LuaAbandon string
	//go:embed lua/break.lua
	LuaBreak string
	//go:embed lua/advance.lua
	LuaAdvance string
)

// The scripts that never grant a key. RenewKey renews with the lock's key alone.
var (
	Renew    = NewSharing(SharingRenewal, luaRenew)
	RenewKey = NewSharing(SharingRenewal, luaRenewKey)
	Inspect  = NewSharing(SharingRenewal, luaInspect)
)

// Script is a Lua script of the protocol.
type Script struct {
	Source, SHA string
	FirstKey    *Script // replaces the script while the slot migrates; uses the first key, and Keys.Holders; may be nil
	Acquires    bool    // it waits while too few connections would be left for other scripts
}

func init() { Renew.FirstKey = RenewKey }

// NewScript returns the script that consists of the prelude and body.
func NewScript(body ...string) *Script { return Source(luaPrelude, strings.Join(body, "")) }

// Source returns the script with that source.
func Source(parts ...string) *Script {
	src := stripped(strings.Join(parts, ""))
	sum := sha1.Sum([]byte(src)) //nolint:gosec // the name of a script on the server
	return &Script{Source: src, SHA: hex.EncodeToString(sum[:])}
}

// stripped returns a source without its comments and its indentation, and with the same lines.
func stripped(source string) string {
	var b strings.Builder
	for l := range strings.Lines(source) {
		if l = strings.TrimSpace(l); !strings.HasPrefix(l, "--") {
			b.WriteString(l)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// When a script needs the part for shares, which costs time. Behind a share that was not the
// first waiter, the script is repeated.
const (
	luaShared      = "if value and not holder then shared = string.find(value, '^@shared %d+ [01]*$') end\n"
	SharingAlways  = "local sharing = true\n"
	SharingRenewal = "local sharing = shared\n"
	SharingAcquire = "if not value then head = waiters(1)[1] or false end\n" +
		"local sharing = shared or ARGV[6] or head and string.find(head, '^ %d+:', 51)\n"
	SharingRelease = "if holder == ARGV[2] then head = waiters(1)[1] or false end\n" +
		"local sharing = shared or head and string.find(head, '^ %d+:', 51)\n"
)

// NewSharing returns the script that consists of the prelude, the part for shares, which is run
// if when says so, and body.
func NewSharing(when, body string) *Script { return NewScript(luaShared, when, luaShare, body) }

// Once is a command that go-redis sends only once. A request can therefore arrive late
// only if the driver saw no reply to it; a tombstone refuses it then. go-redis still
// follows redirections: a redirected command was not executed.
type Once struct{ *redis.Cmd }

// NoRetry disables the retries of go-redis.
func (Once) NoRetry() bool { return true }

// Sending is the state of a request. A request that waits for a connection can be
// withdrawn, and then certainly is not executed. The zero value is ready.
type Sending struct{ state atomic.Int32 }

const (
	pending = iota
	written
	withdrawn
)

var errWithdrawn = errors.New("redis: the request was withdrawn")

// Withdraw prevents the request from being written to a connection. It returns false if
// it has been written.
func (s *Sending) Withdraw() bool { return s.state.CompareAndSwap(pending, withdrawn) }

// Written reports whether the request has been written to a connection. It is true for nil.
func (s *Sending) Written() bool { return s == nil || s.state.Load() == written }

// scriptName is the SHA or the source of a script. go-redis encodes arguments when it
// writes the request to a connection, not before.
type scriptName struct {
	*Sending
	text string
}

// MarshalBinary returns the text, or an error if the request has been withdrawn.
func (n scriptName) MarshalBinary() ([]byte, error) {
	if n.state.CompareAndSwap(pending, written) || n.Written() {
		return []byte(n.text), nil
	}
	return nil, errWithdrawn
}

// Command returns the command that runs the script, by SHA or by source.
func (s *Script) Command(ctx context.Context, sending *Sending, bySource bool, keys []string, args []any) Once {
	name, text := "evalsha", s.SHA
	if bySource {
		name, text = "eval", s.Source
	}
	a := make([]any, 0, 3+len(keys)+len(args))
	a = append(a, name, scriptName{sending, text}, len(keys))
	for _, k := range keys {
		a = append(a, k)
	}
	return Once{redis.NewCmd(ctx, append(a, args...)...)}
}
