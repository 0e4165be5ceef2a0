package protocol

import (
	"strconv"
	"time"

	"github.com/interlock-go/lock/backend"
)

// MaxTTL is the longest TTL.
const MaxTTL = backend.MaxTTL

// TombstoneTTL is the lifetime of a tombstone, longer than the data of a dead connection may be delayed.
const TombstoneTTL = 5 * time.Minute

// Number returns a number in a reply or a message, 0 if it is none.
func Number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// OfMillis converts ms to a duration. It limits a value that a foreign client has set, so that sums do not overflow.
func OfMillis(ms int64) time.Duration {
	return time.Duration(min(ms, int64(10*MaxTTL/time.Millisecond))) * time.Millisecond
}

// Millis converts d to ms and rounds up: a lease must not be shorter than requested.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
