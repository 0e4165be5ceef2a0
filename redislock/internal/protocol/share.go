package protocol

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// FormatShare returns the share in an argument of ACQUIRE and, after a colon, in a member of the queue.
func FormatShare(s backend.Share) string { return fmt.Sprintf("%d/%d", s.Weight, s.Capacity) }

// parseShare is the inverse of FormatShare; "" is the whole key.
func parseShare(s string) backend.Share {
	w, c, _ := strings.Cut(s, "/")
	return backend.Share{Weight: int(Number(w)), Capacity: int(Number(c))}
}

// cutShare parses what follows the owner address in the record of a holder: the token, for a share
// a colon, the share, a colon and its slots, and the metadata.
func cutShare(s string) (share backend.Share, slots []int, metadata string) {
	first, rest, _ := strings.Cut(s, " ")
	f := strings.Split(first, ":")
	if _, err := strconv.ParseUint(f[0], 10, 64); err != nil {
		return share, nil, s // Redlock has a ticket here; a foreign value anything
	}
	if len(f) == 3 {
		share, slots = parseShare(f[1]), ParseSlots(f[2])
	}
	return share, slots, rest
}

// ParseSlots parses ranges of permits as "0-1,4-4". It returns nil if s is none.
func ParseSlots(s string) []int {
	var slots []int
	for r := range strings.SplitSeq(s, ",") {
		from, to, ok := strings.Cut(r, "-")
		a, b := Number(from), Number(to)
		if !ok || from == "" || b >= backend.MaxPermits {
			return nil
		}
		for i := a; i <= b; i++ {
			slots = append(slots, int(i))
		}
	}
	return slots
}
