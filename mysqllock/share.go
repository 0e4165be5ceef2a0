package mysqllock

import "strconv"

// A shared holder has a row of its own. Its place is shareBase plus its token, above those of all
// waiters, so its client renews and guards it by primary key. The row of the lock then has no owner
// and ends at sharedEnd: no statement for exclusive grants finds the lock free, and only a
// transaction that has locked that row changes this. See packetshare.go.
const (
	shareBase = 1 << 62
	sharedEnd = 9e18 // "expires" of a lock with shared holders
)

var (
	sharesFragment = strconv.FormatInt(shareBase, 10)
	endFragment    = strconv.FormatInt(sharedEnd, 10)
)

// sharePlace is the place of the row of a shared grant.
func sharePlace(token uint64) int64 { return shareBase + int64(token) }

// parseSlots reads the slots of a row: a character for each, 1 if the holder has it.
func parseSlots(s string) (slots []int) {
	for i := range len(s) {
		if s[i] == '1' {
			slots = append(slots, i)
		}
	}
	return slots
}
