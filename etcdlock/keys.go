package etcdlock

import (
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix stands before every key unless another is asked for.
const DefaultPrefix = "lock"

// tombstones is the folder of attempts that must not succeed any more. No escaped
// name looks like it, since a percent sign is followed by two digits there.
const tombstones = "%x"

// escape is injective, and its result has no slash, so that no folder lies in
// another. Whatever cannot be seen is escaped too, for those who look with etcdctl.
func escape(s string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c == '/' || c == '%' || c <= ' ' || c == 0x7f {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape is the reverse of escape. It is false for what escape never returns.
func unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		var c byte
		if i+2 >= len(s) {
			return "", false
		}
		if _, err := fmt.Sscanf(s[i+1:i+3], "%02X", &c); err != nil {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), escape(b.String()) == s
}

// Folder returns what all keys of a name begin with: the holder's and those of
// the waiters.
func Folder(prefix, name string) string { return escape(prefix) + "/" + escape(name) + "/" }

// place is the part of a key that belongs to one attempt.
func place(lease clientv3.LeaseID, owner string) string {
	return fmt.Sprintf("%016x-%s", uint64(lease), owner)
}

const ownerLen = 32

// parsePlace splits what follows the folder in a key. It is false for a key that
// another program made.
func parsePlace(s string) (lease, owner string, ok bool) {
	if len(s) != 16+1+ownerLen || s[16] != '-' || !isHex(s[:16]) || !isHex(s[17:]) {
		return "", "", false
	}
	return s[:16], s[17:], true
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// splitKey takes a key apart. It is false for one that is in no lock's folder.
func splitKey(root, key string) (name, rest string, ok bool) {
	key, ok = strings.CutPrefix(key, root)
	if !ok {
		return "", "", false
	}
	name, rest, ok = strings.Cut(key, "/")
	if !ok || name == "" {
		return "", "", false
	}
	name, ok = unescape(name)
	return name, rest, ok && len(name) <= backend.MaxName
}

func (b *Backend) folder(name string) string { return b.root + escape(name) + "/" }

func (b *Backend) tombstone(lease clientv3.LeaseID, owner string) string {
	return b.root + tombstones + "/" + place(lease, owner)
}

func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > 200 {
		return backend.Invalid("prefix", prefix, "1 to 200 bytes")
	}
	return nil
}
