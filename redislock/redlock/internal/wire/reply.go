package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Statuses of replies, beside those of package protocol.
const (
	Again       = -6 // the script is sent again, to remove more dead waiters
	OtherSet    = -5 // the node belongs to another set of nodes
	Quarantined = -4 // the node may have lost grants
	Late        = -3 // the request arrived too late
	WrongType   = -2
	Abandoned   = -1
	// OtherOwner is the reply of a break that names an owner which does not hold the key.
	OtherOwner = 2
)

// Token returns the fencing token of the grant or of the holder.
func Token(r protocol.Reply) uint64 { return uint64(max(r.Num(1), 0)) }

// Left returns the remaining lease. It is negative if the key does not expire.
func Left(r protocol.Reply) time.Duration { return protocol.OfMillis(r.Num(0)) }

// Holder returns the holder of a key that is held.
func Holder(r protocol.Reply) backend.Holder {
	value := r.Str(2)
	h := backend.Holder{Left: max(Left(r), 0)}
	owner, rest, ok := protocol.ParseOwner(value)
	if !ok {
		h.Owner, h.Foreign = strings.ToValidUTF8(value, "\uFFFD"), true
		return h
	}
	h.Owner, h.Token = owner, Token(r)
	_, h.Metadata = CutTicket(rest)
	return h
}

// Ticket returns the ticket in the value of a key that is held, 0 if there is none.
func Ticket(r protocol.Reply) int64 {
	_, rest, _ := protocol.ParseOwner(r.Str(2))
	n, _ := CutTicket(rest)
	return n
}

// CutTicket cuts the ticket off the text before the metadata. It returns 0 and the whole text if there is none.
func CutTicket(s string) (int64, string) {
	number, metadata, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, s
	}
	return n, metadata
}

// Info returns what a reply of Inspect or Break says about the lock of that name.
func Info(r protocol.Reply, name string) backend.Info {
	i := backend.Info{Name: name}
	if r.Status == protocol.Yes || r.Status == OtherOwner {
		h := Holder(r)
		h.Age = since(r, int64(h.Token))
		i.Holder = &h
	}
	for n := 3; n+1 < len(r.Rest); n += 2 {
		owner, rest, _ := protocol.ParseOwner(r.Str(n))
		_, metadata, _ := strings.Cut(rest, " ") // the TTL precedes it
		i.Waiters = append(i.Waiters, backend.Contender{Owner: owner, Metadata: metadata, Age: since(r, r.Num(n+1))})
	}
	return i
}

// since returns the age of a token or of a score in the queue. Both are the server's
// clock, or later if that was set back; the age is then too short, at least 0.
func since(r protocol.Reply, us int64) time.Duration {
	if us <= 0 || us > r.US {
		return 0
	}
	return time.Duration(r.US-us) * time.Microsecond
}

// CheckType returns an error if the key is of another type than string.
func CheckType(r protocol.Reply, k protocol.Keys) error {
	if r.Status != WrongType {
		return nil
	}
	return fmt.Errorf("%w: redis key %.200q holds a %s, and a lock is a string: choose another name or prefix",
		backend.ErrInvalid, k.Lock, r.Str(0))
}

// Tombstone returns the argument for the lifetime of a tombstone, "0" if none is needed.
func Tombstone(needed bool) string {
	if !needed {
		return "0"
	}
	return fmt.Sprint(protocol.TombstoneTTL.Milliseconds())
}
