package zklock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// DefaultPrefix is the node under which all locks stand unless another is asked
// for.
const DefaultPrefix = "interlock"

// Node returns the path of the node that the lock of a name is: root is the path
// of the chroot ("" for none), then come the prefix and the escaped name.
func Node(root, prefix, name string) string { return root + "/" + prefix + "/" + escape(name) }

// escape is injective: a byte that ZooKeeper refuses, a slash, a percent sign and
// every byte that is not printable ASCII become %XX. So does a leading dot, since
// "." and ".." are no names of nodes.
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

// unescape is the reverse of escape. It is false for a node of no lock's.
func unescape(node string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(node); i++ {
		if node[i] != '%' {
			b.WriteByte(node[i])
			continue
		}
		if i+3 > len(node) {
			return "", false
		}
		c, err := strconv.ParseUint(node[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	name := b.String()
	return name, name != "" && len(name) <= backend.MaxName && escape(name) == node
}

// child is one who holds or waits, as its node is named: the owner, a hyphen, and
// the sequence that the server has appended.
type child struct {
	node  string
	owner string
	seq   int32
}

const ownerLen = 32

// parseChild is false for a node that is not of our form.
func parseChild(node string) (child, bool) {
	if len(node) < ownerLen+2 || node[ownerLen] != '-' {
		return child{}, false
	}
	for i := range ownerLen {
		if c := node[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return child{}, false
		}
	}
	digits := node[ownerLen+1:]
	seq, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(digits) < 10 || digits[0] == '+' {
		return child{}, false
	}
	return child{node, node[:ownerLen], int32(seq)}, true
}

// queue returns those of ours among the children of a lock's node in the order in
// which they are served.
func queue(nodes []string) []child {
	q := make([]child, 0, len(nodes))
	for _, n := range nodes {
		if c, ok := parseChild(n); ok {
			q = append(q, c)
		}
	}
	slices.SortFunc(q, func(a, b child) int { return cmp.Or(compareSeq(a.seq, b.seq), strings.Compare(a.node, b.node)) })
	return q
}

// compareSeq orders sequences over their wrap from the greatest int32 to the
// least: those that live at the same time are never 2^31 apart.
func compareSeq(a, b int32) int { return cmp.Compare(a-b, 0) }

func indexOf(q []child, node string) int {
	return slices.IndexFunc(q, func(c child) bool { return c.node == node })
}

// base returns the last element of a path.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// checkPrefix accepts what can be one element of a path as it is.
func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > 200 || escape(prefix) != prefix || prefix == "zookeeper" {
		return backend.Invalid("prefix", prefix, "1 to 200 printable ASCII characters without '/', '%', white space and a leading dot, and not zookeeper")
	}
	return nil
}

// checkRoot accepts the path of an existing node, or "".
func checkRoot(root string) error {
	if root == "" {
		return nil
	}
	ok := strings.HasPrefix(root, "/") && len(root) <= 1000
	for _, e := range strings.Split(strings.TrimPrefix(root, "/"), "/") {
		if e == "" || e == "." || e == ".." || strings.ContainsFunc(e, func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 }) {
			ok = false
		}
	}
	if !ok {
		return backend.Invalid("chroot", root, "the path of a node, such as /app/locks, or none")
	}
	return nil
}
