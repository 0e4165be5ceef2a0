package zklock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// kind is what the name of a node says of its share: by the zeros in front of the sequence
// number, which a client that knows no shares reads as a part of the number. So to such a client
// every node is a place in the queue, and excludes.
type kind uint8

const (
	exclusiveNode kind = iota // it may be that of a reader since a downgrade, which its data say
	readerNode
	permitsNode // its data say how many
)

func kindOf(s backend.Share) kind {
	switch {
	case s.Exclusive():
		return exclusiveNode
	case s.Capacity == 0:
		return readerNode
	}
	return permitsNode
}

// zeros is the part of a name between the hyphen and the sequence number.
func (k kind) zeros() string { return strings.Repeat("0", int(k)) }

// separator is the byte between the metadata, which has no control characters, and the share in
// the data of a node.
const separator = "\x00"

// content is what a node says: its name and its data.
type content struct {
	metadata string
	share    backend.Share
	slots    []int // of permits, nil until they are assigned
}

// contentOf reads a node. One that the driver did not write is taken for an exclusive one.
func contentOf(k kind, data []byte) content {
	metadata, tail, found := strings.Cut(string(data), separator)
	c := content{metadata: metadata}
	switch {
	case k == readerNode, k == exclusiveNode && tail == backend.Reader.String():
		c.share = backend.Reader
	case k == permitsNode && found:
		share, slots, assigned := strings.Cut(tail, " ")
		if c.share = parseShare(share); assigned && c.share.Weight > 0 {
			if c.slots = parseSlots(slots); !c.slotsFit() {
				c.share, c.slots = backend.Share{}, nil
			}
		}
	}
	return c
}

// data returns the data of a node, for the kind that its name says.
func (c content) data(k kind) []byte {
	s := c.metadata
	if kindOf(c.share) != k || k == permitsNode {
		s += separator + c.share.String()
	}
	if c.slots != nil {
		s += " " + formatSlots(c.slots)
	}
	return []byte(s)
}

// slotsFit reports whether the slots are as many as the permits, in rising order.
func (c content) slotsFit() bool {
	for i, slot := range c.slots {
		if slot < 0 || slot >= c.share.Capacity || i > 0 && slot <= c.slots[i-1] {
			return false
		}
	}
	return len(c.slots) == c.share.Weight
}

// parseShare reads permits as in "2/10". It returns the zero Share for anything else.
func parseShare(s string) backend.Share {
	weight, capacity, _ := strings.Cut(s, "/")
	k, err1 := strconv.Atoi(weight)
	n, err2 := strconv.Atoi(capacity)
	share := backend.Share{Weight: k, Capacity: n}
	if err1 != nil || err2 != nil || n == 0 || share.Validate() != nil {
		return backend.Share{}
	}
	return share
}

// formatSlots writes slots as ranges: 0-2,5.
func formatSlots(slots []int) string {
	var parts []string
	for i := 0; i < len(slots); i++ {
		first := slots[i]
		for i+1 < len(slots) && slots[i+1] == slots[i]+1 {
			i++
		}
		part := strconv.Itoa(first)
		if slots[i] > first {
			part += fmt.Sprintf("-%d", slots[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// parseSlots reads what formatSlots has written. It returns nil for anything else.
func parseSlots(s string) (slots []int) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last < first || last >= backend.MaxPermits {
			return nil
		}
		for i := first; i <= last && len(slots) <= backend.MaxPermits; i++ {
			slots = append(slots, i)
		}
	}
	return slots
}

// contender is a place in the queue whose node was read.
type contender struct {
	child
	content
	stat *zk.Stat // nil if only the name was read
}

// holders returns how many of the queue hold the key: the head of the queue that fits. It only
// depends on the places in front of each one, which only become fewer. So a contender that
// holds once does so until its node is deleted, and all holders are in front of all waiters, so
// tokens rise in the order of grants.
func holders(queue []contender) int {
	weight := 0
	for i, c := range queue {
		switch first := queue[0].share; {
		case i == 0:
		case first.Exclusive(), c.share.Exclusive(), c.share.Capacity != first.Capacity:
			return i
		case c.share.Capacity > 0 && weight+c.share.Weight > c.share.Capacity:
			return i
		}
		weight += c.share.Weight
	}
	return len(queue)
}

// assignSlots gives the lowest free slots to those of the holders that have none yet, in the
// order of the queue. It returns the indices of these.
func assignSlots(held []contender) (assigned []int) {
	var taken []int
	for _, c := range held {
		taken = append(taken, c.slots...)
	}
	for i := range held {
		if c := &held[i]; c.share.Capacity > 0 && c.slots == nil {
			c.slots = c.share.FreeSlots(taken)
			taken = append(taken, c.slots...)
			assigned = append(assigned, i)
		}
	}
	return assigned
}
