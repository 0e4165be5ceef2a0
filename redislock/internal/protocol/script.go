package protocol

import (
	"context"
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1; no security depends on it
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script. It replies {status, clock of the server in us, ...}.
type Script struct {
	Source, SHA string
	FirstKey    *Script // replaces the script while the slot migrates; uses the first key, and Keys.Holders; may be nil
	Acquires    bool    // it waits while too few connections would be left for other scripts
}

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
