package etcdlock

import (
	"fmt"
	"net/url"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the first part of every key, unless WithPrefix sets another.
const DefaultPrefix = "lock"

// tombstones is the folder of attempts that must not succeed any more. It is not the
// folder of a lock: in an escaped name two digits follow a percent sign.
const tombstones = "%x"

// escape is injective, and its result has no slash, so no folder is inside another.
// Spaces and control characters are escaped so that the output of etcdctl is readable.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c == '/' || c == '%' || c <= ' ' || c == 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape is the reverse of escape. It returns false for a string that escape never
// returns.
func unescape(s string) (string, bool) {
	raw, err := url.PathUnescape(s)
	return raw, err == nil && escape(raw) == s
}

// Folder returns the prefix of the keys of the holder and the waiters of a lock.
func Folder(prefix, name string) string { return escape(prefix) + "/" + escape(name) + "/" }

// place returns the part of a key after its folder.
func place(lease clientv3.LeaseID, owner string) string {
	return fmt.Sprintf("%016x-%s", uint64(lease), owner)
}

// parsePlace is the reverse of place. It returns false for the key of another program.
func parsePlace(s string) (lease, owner string, ok bool) {
	lease, owner, ok = strings.Cut(s, "-")
	return lease, owner, ok && len(lease) == 16 && len(owner) == 32 && isHex(lease) && isHex(owner)
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// splitKey returns the lock name of a key under root and the part after its folder. It
// returns false if the key is not in the folder of a lock.
func splitKey(root, key string) (name, rest string, ok bool) {
	escaped, rest, ok := strings.Cut(strings.TrimPrefix(key, root), "/")
	if !ok || escaped == "" {
		return "", "", false
	}
	name, ok = unescape(escaped)
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
