package zklock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
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

// kindOfZeros returns the kind of a name. One that is not known excludes.
func kindOfZeros(n int) kind {
	if k := kind(n); n >= 0 && k <= permitsNode {
		return k
	}
	return exclusiveNode
}

// zeros is the part of a name between the hyphen and the sequence number.
func (k kind) zeros() string { return strings.Repeat("0", int(k)) }

// separator is the byte between the metadata, which has no control characters, and the share in
// the data of a node.
const separator = "\x00"

// fill sets what the data of a node say. A node that the driver did not write is an exclusive one.
func fill(p *places.Place, k kind, data []byte) {
	metadata, tail, found := strings.Cut(string(data), separator)
	p.Metadata = strings.ToValidUTF8(metadata[:min(len(metadata), backend.MaxMetadata)], "\uFFFD")
	p.Share, p.Slots = backend.Share{}, nil
	switch {
	case k == readerNode, k == exclusiveNode && tail == backend.Reader.String():
		p.Share = backend.Reader
	case k == permitsNode && found:
		share, slots, recorded := strings.Cut(tail, " ")
		if p.Share = parseShare(share); recorded && p.Share.Weight > 0 {
			if p.Slots = parseSlots(slots); !slotsFit(p) {
				p.Share, p.Slots = backend.Share{}, nil
			}
		}
	}
}

// dataOf returns the data of the node of a place, for the kind that its name says.
func dataOf(p *places.Place, k kind) []byte {
	s := p.Metadata
	if kindOf(p.Share) != k || k == permitsNode {
		s += separator + p.Share.String()
	}
	if len(p.Slots) > 0 {
		s += " " + formatSlots(p.Slots)
	}
	return []byte(s)
}

// slotsFit reports whether the slots are as many as the permits, in rising order.
func slotsFit(p *places.Place) bool {
	for i, slot := range p.Slots {
		if slot < 0 || slot >= p.Share.Capacity || i > 0 && slot <= p.Slots[i-1] {
			return false
		}
	}
	return len(p.Slots) == p.Share.Weight
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
