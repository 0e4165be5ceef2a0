// Package protocol defines what package redislock stores on a Redis server and exchanges
// with it: keys, owner addresses, scripts and replies.
package protocol

import (
	"strings"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the default prefix of keys.
const DefaultPrefix = "lock"

// Keys are the keys of one lock. All are in the slot of Lock, which contains no brace and
// is the hash tag of Queue and of tombstones. Fence is the key of the fence counter.
type Keys struct{ Lock, Queue, Fence string }

// Tombstone returns the key of the tombstone of an attempt.
func (k Keys) Tombstone(owner string) string { return "{" + k.Lock + "}:x:" + owner }

// Channel returns the sharded channel of a process in the slot of the lock.
func (k Keys) Channel(address string) string { return "{" + k.Lock + "}:@" + address }

// Keys returns the keys of the lock of that name.
func (p Process) Keys(name string) Keys {
	lock := LockKey(p.Prefix, name)
	return Keys{Lock: lock, Queue: "{" + lock + "}:q", Fence: p.Fence(lock)}
}

// Fence returns the key of the fence counter of a lock. The locks of a prefix share one, which
// never expires, so that a name leaves nothing and tokens rise after it was removed. In a
// cluster the locks of a slot share one.
func (p Process) Fence(lock string) string {
	if strings.HasPrefix(p.Address, ShardedAddress) {
		return "{" + slotTag(p.Prefix, slotOf(lock)) + "}:t"
	}
	return p.counter
}

var (
	escaper   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

// LockKey returns the key of a lock. It is injective. It escapes names that contain a
// brace or begin with a percent sign; an escaped name begins with a percent sign.
func LockKey(prefix, name string) string {
	if strings.ContainsAny(name, "{}") || strings.HasPrefix(name, "%") {
		name = "%" + escaper.Replace(name)
	}
	if prefix == "" {
		return name
	}
	return prefix + ":" + name
}

// LockName is the inverse of LockKey. It returns false for a key that is no lock's.
func LockName(prefix, key string) (string, bool) {
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
	return name, name != "" && len(name) <= backend.MaxName && LockKey(prefix, name) == key
}

// CheckPrefix returns ErrInvalid for a prefix that could make two names share a key, or
// could put a brace into a key.
func CheckPrefix(prefix string) error {
	const accepted = "at most 200 bytes without ':', '{', '}', white space and control characters"
	if len(prefix) > 200 || strings.ContainsFunc(prefix, func(r rune) bool {
		return r <= ' ' || r == 0x7f || r == ':' || r == '{' || r == '}'
	}) {
		return backend.Invalid("prefix", prefix, accepted)
	}
	return nil
}

// ScanPattern returns the SCAN pattern for the locks of a prefix.
func ScanPattern(prefix string) string {
	if prefix == "" {
		return "*"
	}
	return globEscape(prefix+":") + "*"
}

// globEscape returns the SCAN pattern that matches s only.
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
