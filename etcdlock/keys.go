package etcdlock

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the first part of every key, unless WithPrefix sets another.
const DefaultPrefix = "lock"

// markers is the folder of the markers of sessions. It is not the folder of a lock: in an escaped name two digits
// follow a percent sign.
const markers = "%s"

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

// A name is that of a key of ours in the folder of a lock. The key has the share in its name, so
// that a transaction can compare all keys of a share as a range:
//
//	lease-number                       exclusive, also after a downgrade
//	%r-lease-number                    a reader
//	%pcapacity-weight-lease-number     permits
//
// The number is that of places.Put: a process has few, which it uses again. The servers keep the name of a deleted key
// until a compaction, and each transaction would search all of those in the folder.
type name struct {
	share  backend.Share
	lease  clientv3.LeaseID
	number int
}

// The parts of the folder for shares.
const (
	readers = "%r-"
	permits = "%p"
)

// permitsOf is the part of the folder for the permits of one capacity.
func permitsOf(capacity int) string { return permits + strconv.Itoa(capacity) + "-" }

// String returns the part of the key after its folder.
func (n name) String() string {
	s := fmt.Sprintf("%016x-%d", uint64(n.lease), n.number)
	switch {
	case n.share.Exclusive():
		return s
	case n.share.Capacity == 0:
		return readers + s
	}
	return permitsOf(n.share.Capacity) + strconv.Itoa(n.share.Weight) + "-" + s
}

// parseName is the reverse of String. It returns false for the key of another program.
func parseName(s string) (n name, ok bool) {
	rest := s
	if of, ok := strings.CutPrefix(s, readers); ok {
		rest, n.share = of, backend.Reader
	} else if of, ok := strings.CutPrefix(s, permits); ok {
		capacity, of, _ := strings.Cut(of, "-")
		weight, of, _ := strings.Cut(of, "-")
		n.share.Capacity, _ = strconv.Atoi(capacity)
		n.share.Weight, _ = strconv.Atoi(weight)
		rest = of
	}
	lease, number, ok := strings.Cut(rest, "-")
	id, err := strconv.ParseUint(lease, 16, 64)
	n.lease = clientv3.LeaseID(id)
	n.number, _ = strconv.Atoi(number)
	return n, ok && err == nil && n.number >= 0 && n.share.Validate() == nil && n.String() == s
}

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

func (s *service) folder(name string) string { return s.root + escape(name) + "/" }

// folderOf returns the folder of a key.
func folderOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > 200 {
		return backend.Invalid("prefix", prefix, "1 to 200 bytes")
	}
	return nil
}
