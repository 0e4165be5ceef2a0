package pglock

import (
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// answer is a row of the type interlock_answer, see types.sql. Times are in microseconds.
type answer struct {
	index     int64 // from 1: of a key or an attempt in a batch
	status    string
	clock     int64
	token     int64
	slots     string
	remaining int64
	pass      int64
	noPlace   bool
	watch     bool
	ask       int64
	holder    string
	metadata  string
	share     backend.Share
	ahead     string
	renewed   []string // owners
}

// The values of status.
const (
	granted = "granted"
	again   = "again"   // more waiters are to be granted first
	held    = "held"    // by the attempt or another one; of acquire
	refused = "refused" // the attempt has ended
	ended   = "ended"
	free    = "free"    // it did not hold
	guarded = "guarded" // a transaction with Guard keeps the holder
	locked  = "locked"  // another transaction has locked the row: nothing was done
)

func scanAnswer(r pgx.CollectableRow) (a answer, err error) {
	err = r.Scan(&a.index, &a.status, &a.clock, &a.token, &a.slots, &a.remaining, &a.pass, &a.noPlace, &a.watch, &a.ask,
		&a.holder, &a.metadata, &a.share.Weight, &a.share.Capacity, &a.ahead, &a.renewed)
	return a, err
}

// firstHolder returns the holder that an answer names.
func (a *answer) firstHolder() backend.Holder {
	return backend.Holder{
		Contender: backend.Contender{Owner: a.holder, Metadata: unescape(a.metadata), Share: a.share},
		Token:     uint64(max(a.token, 0)), Slots: slotsOf(a.slots), Left: max(micros(a.remaining), 0),
	}
}

// slotsOf reads numbers with commas between them.
func slotsOf(text string) (slots []int) {
	if text == "" {
		return nil
	}
	for n := range strings.SplitSeq(text, ",") {
		slots = append(slots, int(number(n)))
	}
	return slots
}

// micros returns a duration of the server.
func micros(us int64) time.Duration {
	return time.Duration(min(max(us, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}

// micro returns d in microseconds, rounded up: a lease must not be shorter than requested.
func micro(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}
