package redislock

import (
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix stands before every key unless another is asked for.
const DefaultPrefix = "lock"

// keys are those of one lock. All hash to the slot of the first: it holds no
// brace, so it is hashed whole, and the others carry it as their hash tag.
type keys struct{ lock, queue, fence string }

func (k keys) tombstone(owner string) string { return "{" + k.lock + "}:x:" + owner }

// channel is that of a process beside the key, for a cluster.
func (k keys) channel(address string) string { return "{" + k.lock + "}:@" + address }

// Key is the key of the lock of that name, as redis-cli shows it and another
// client would SET it.
func Key(prefix, name string) string { return lockKey(prefix, name) }

func (b *Backend) keys(name string) keys { return keysOf(lockKey(b.opt.prefix, name)) }

func keysOf(lock string) keys {
	return keys{lock: lock, queue: "{" + lock + "}:q", fence: "{" + lock + "}:f"}
}

var (
	escaper   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

// lockKey is injective: a name with a brace is escaped and begins with a percent
// sign, and so is every name that begins with one. All others stay as they are.
func lockKey(prefix, name string) string {
	if strings.ContainsAny(name, "{}") || strings.HasPrefix(name, "%") {
		name = "%" + escaper.Replace(name)
	}
	if prefix == "" {
		return name
	}
	return prefix + ":" + name
}

// lockName is the reverse of lockKey. It is false for a key of no lock's.
func lockName(prefix, key string) (string, bool) {
	name := key
	if prefix != "" {
		var ok bool
		if name, ok = strings.CutPrefix(key, prefix+":"); !ok {
			return "", false
		}
	}
	if rest, ok := strings.CutPrefix(name, "%"); ok {
		name = unescaper.Replace(rest)
	}
	return name, name != "" && len(name) <= backend.MaxName && lockKey(prefix, name) == key
}

// checkPrefix keeps pairs of prefix and name from meeting in one key, and keys
// free of braces.
func checkPrefix(prefix string) error {
	const accepted = "at most 200 bytes without ':', '{', '}', white space and control characters"
	if len(prefix) > 200 || strings.ContainsFunc(prefix, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == ':' || r == '{' || r == '}'
	}) {
		return backend.Invalid("prefix", prefix, accepted)
	}
	return nil
}

// globEscape makes s match itself in a pattern of SCAN.
func globEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]^-\`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// party is how an attempt stands in values and queues: owner@address.
func (b *Backend) party(owner string) string { return owner + "@" + b.address }

// member is the attempt's entry in the queue.
func (b *Backend) member(req backend.Request) string {
	m := fmt.Sprintf("%s %d", b.party(req.Owner), millis(req.TTL))
	if req.Metadata != "" {
		m += " " + req.Metadata
	}
	return m
}

const partyLen = 32 + 1 + 17

// parseParty splits a value or a member of ours; it is false for a foreign one.
func parseParty(s string) (owner, rest string, ok bool) {
	if len(s) < partyLen || s[32] != '@' || (s[33] != 'p' && s[33] != 's') ||
		!isHex(s[:32]) || !isHex(s[34:partyLen]) || (len(s) > partyLen && s[partyLen] != ' ') {
		return "", "", false
	}
	if len(s) > partyLen {
		rest = s[partyLen+1:]
	}
	return s[:32], rest, true
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}
