package redislock

import (
	"strings"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// parseSlots parses ranges of permits as "0-1,4-4". It returns nil if s is none.
func parseSlots(s string) []int {
	if s == "" {
		return nil
	}
	var slots []int
	for r := range strings.SplitSeq(s, ",") {
		from, to, ok := strings.Cut(r, "-")
		a, b := protocol.Number(from), protocol.Number(to)
		if !ok || from == "" || b >= backend.MaxPermits {
			return nil
		}
		for i := a; i <= b; i++ {
			slots = append(slots, int(i))
		}
	}
	return slots
}
