package mysqllock

import (
	"fmt"
	"strconv"
	"strings"
)

// A shared holder has a row of its own. Its place is shareBase plus its token, above those of all
// waiters, so its client renews and guards it by primary key. The row of the lock then has no owner
// and ends at sharedEnd: no statement for exclusive grants finds the lock free, and only a
// transaction that has locked that row changes this. See packetshare.go.
const (
	shareBase = 1 << 62
	sharedEnd = 9e18 // "expires" of a lock with shared holders
	slotWidth = 4    // characters of a slot in a row: a comma and three hex digits
)

var (
	sharesFragment = strconv.FormatInt(shareBase, 10)
	endFragment    = strconv.FormatInt(sharedEnd, 10)
)

// sharePlace is the place of the row of a shared grant.
func sharePlace(token uint64) int64 { return shareBase + int64(token) } //nolint:gosec // microseconds since 1970

// parseSlots reads the slots of a row.
func parseSlots(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.Split(s[1:], ",")
	slots := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("mysql: slots %.60q of a row: %w", s, err)
		}
		slots[i] = int(n)
	}
	return slots, nil
}
