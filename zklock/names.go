package zklock

import (
	"math"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the node below which all locks are by default.
const DefaultPrefix = "interlock"

// Node returns the path of the node of a lock: the path of the chroot ("" for none),
// the prefix and the escaped name.
func Node(root, prefix, name string) string { return root + "/" + prefix + "/" + escape(name) }

// escape returns the name of the node of a lock. It is injective: slash, percent sign,
// space and every byte that is not printable ASCII become %XX. So does a leading dot,
// since "." and ".." cannot be names of nodes.
func escape(name string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || c == '/' || c == '%' || (c == '.' && i == 0) {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unescape reverses escape. It returns false if the node is not that of a lock.
func unescape(node string) (string, bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && name != "" && len(name) <= backend.MaxName && escape(name) == node
}

// child is the node of a holder or waiter, below the node of the lock. Its name is the
// owner id, a hyphen, the zeros of its kind, and the sequence number that the server appended.
type child struct {
	node  string
	owner string
	seq   int32
	kind  kind
}

const (
	ownerLen = 32
	seqLen   = 10 // digits of a sequence number
)

// parseChild returns false for a node that the driver did not create.
func parseChild(node string) (child, bool) {
	if len(node) < ownerLen+2 || node[ownerLen] != '-' {
		return child{}, false
	}
	owner, digits := node[:ownerLen], node[ownerLen+1:]
	seq, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(digits) < seqLen || digits[0] == '+' || strings.Trim(owner, "0123456789abcdef") != "" {
		return child{}, false
	}
	return child{node: node, owner: owner, seq: int32(seq), kind: kindOfZeros(len(digits) - seqLen)}, true
}

// lastSeq is the last sequence number of a place in the queue. The server counts the nodes
// that were created below the node of a lock up to 2^31-1, and gives that number to all
// later ones: they have no order. Up to 2^20 attempts may go on after lastSeq was given.
const lastSeq = math.MaxInt32 - 1<<20

// inOrder reports whether the node is a place in the queue. Other nodes are never granted.
func (c child) inOrder() bool { return c.seq >= 0 && c.seq <= lastSeq }

// checkPrefix accepts a name that needs no escaping.
func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > 200 || escape(prefix) != prefix || prefix == "zookeeper" {
		return backend.Invalid("prefix", prefix, "1 to 200 printable ASCII characters without '/', '%', white space and a leading dot, and not zookeeper")
	}
	return nil
}

// checkRoot accepts an absolute path without a slash at its end, or "".
func checkRoot(root string) error {
	refused := func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 } // by ZooKeeper
	if root != "" && (root[0] != '/' || root == "/" || len(root) > 1000 || path.Clean(root) != root || strings.ContainsFunc(root, refused)) {
		return backend.Invalid("chroot", root, "the path of a node, such as /app/locks, or none")
	}
	return nil
}
