package protocol

import (
	"context"
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1; no security depends on it
	"encoding/hex"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
)

// Script is a Lua script. It replies {status, clock of the server in us, ...}.
type Script struct {
	Source, SHA string
	name        []byte  // SHA
	FirstKey    *Script // replaces the script while the slot migrates, and uses the first key only; may be nil
	Acquires    bool    // connections are left to scripts that do not
}

// Source returns the script with that source.
func Source(parts ...string) *Script {
	src := stripped(strings.Join(parts, ""))
	sum := sha1.Sum([]byte(src)) //nolint:gosec // the name of a script on the server
	sha := hex.EncodeToString(sum[:])
	return &Script{Source: src, SHA: sha, name: []byte(sha)}
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

// Command returns the command that runs the script, by SHA or by source.
func (s *Script) Command(ctx context.Context, sending *call.Sending, bySource bool, keys []string, args []any) Once {
	a := make([]any, 3, 3+len(keys)+len(args))
	a[0], a[1], a[2] = "evalsha", scriptName{sending, s.name}, len(keys)
	if bySource {
		a[0], a[1] = "eval", scriptName{sending, []byte(s.Source)}
	}
	for i := range keys {
		a = append(a, &keys[i])
	}
	c := redis.NewCmd(ctx, append(a, args...)...)
	c.SetFirstKeyPos(3)
	return Once{c}
}

// Texts returns arguments for Command without an allocation for each.
func Texts(texts ...string) []any {
	all := make([]any, len(texts))
	for i := range texts {
		all[i] = &texts[i]
	}
	return all
}

// Once is a command that go-redis sends only once. A request can therefore arrive late
// only if the driver saw no reply to it; a tombstone refuses it then. go-redis still
// follows redirections: a redirected command was not executed.
type Once struct{ *redis.Cmd }

// NoRetry disables the retries of go-redis.
func (Once) NoRetry() bool { return true }

var errWithdrawn = errors.New("redis: the request was withdrawn")

// scriptName is the SHA or the source of a script. go-redis encodes arguments when it
// writes the request to a connection, not before.
type scriptName struct {
	sending *call.Sending
	text    []byte
}

// MarshalBinary returns the text, or an error if the request has been withdrawn.
func (n scriptName) MarshalBinary() ([]byte, error) {
	if !n.sending.Write() {
		return nil, errWithdrawn
	}
	return n.text, nil
}
