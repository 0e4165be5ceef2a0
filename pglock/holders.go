package pglock

import (
	"strconv"
	"strings"

	"github.com/interlock-go/lock/backend"
)

// holder returns a holder as the server describes it; left is in µs. If the key is shared, owner is the text of one holder.
func holder(owner, metadata string, token, left int64) backend.Holder {
	if h, ok := holderOf(owner); ok {
		h.Left = max(micros64(left), 0) // until a lease may end, see {holder}
		return h
	}
	return backend.Holder{
		Contender: backend.Contender{Owner: owner, Metadata: unescape(metadata)},
		Token:     uint64(max(token, 0)), Left: max(micros64(left), 0),
	}
}

// holderOf returns a holder from its text: owner, token, left and age in µs, weight, capacity, slots, metadata.
func holderOf(text string) (h backend.Holder, ok bool) {
	f := strings.SplitN(text, " ", 8)
	if len(f) != 8 {
		return h, false
	}
	return backend.Holder{
		Contender: contender(f[0], f[3], f[4], f[5], f[7]),
		Token:     uint64(max(number(f[1]), 0)), Left: max(micros64(number(f[2])), 0), Slots: slotsOf(f[6]),
	}, true
}

func contender(owner, age, weight, capacity, metadata string) backend.Contender {
	c := backend.Contender{Owner: owner, Metadata: unescape(metadata), Age: max(micros64(number(age)), 0)}
	if w := number(weight); w > 0 {
		c.Share = backend.Share{Weight: int(w), Capacity: int(number(capacity))}
	}
	return c
}

// slotsOf reads numbers with commas between them.
func slotsOf(text string) (slots []int) {
	for s := range strings.SplitSeq(text, ",") {
		if n, err := strconv.Atoi(s); err == nil {
			slots = append(slots, n)
		}
	}
	return slots
}
