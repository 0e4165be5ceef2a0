package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// MaxTTL is the longest TTL.
const MaxTTL = backend.MaxTTL

// Statuses of replies.
const (
	Again     = -6 // the script has to be repeated, to remove more dead waiters
	WrongType = -2
	Abandoned = -1
	No        = 0
	Yes       = 1
	// OtherOwner is the reply of a break that names an owner which does not hold the key.
	OtherOwner = 2
	// Shared is the reply of an inspection of a lock that shares hold.
	Shared = 3
	// OtherCapacity is the reply to a share whose capacity differs from that of the others.
	OtherCapacity = -7
)

// Reply is the reply of a script.
type Reply struct {
	Status int64
	US     int64 // the server's clock, in microseconds
	Rest   []any
	Sent   time.Time // before the request was sent
}

// ParseReply parses the reply of a script that was sent at that time.
func ParseReply(v any, sent time.Time) (Reply, error) {
	l, ok := v.([]any)
	if !ok || len(l) < 2 {
		return Reply{}, fmt.Errorf("unexpected reply of a script: %.100q", fmt.Sprint(v))
	}
	r := Reply{Sent: sent, Rest: l[2:]}
	if r.Status, ok = l[0].(int64); !ok {
		return Reply{}, fmt.Errorf("unexpected status of a script: %.100q", fmt.Sprint(l[0]))
	}
	r.US = Number(l[1])
	return r, nil
}

// Str returns the i-th value after the clock as a string, "" if there is none.
func (r Reply) Str(i int) string {
	if i >= len(r.Rest) {
		return ""
	}
	s, _ := r.Rest[i].(string)
	return s
}

// Num returns the i-th value after the clock as a number, 0 if there is none.
func (r Reply) Num(i int) int64 {
	if i >= len(r.Rest) {
		return 0
	}
	return Number(r.Rest[i])
}

// Token returns the fencing token of the grant or of the holder.
func (r Reply) Token() uint64 { return uint64(max(r.Num(1), 0)) }

// Left returns the remaining lease. It is negative if the key does not expire.
func (r Reply) Left() time.Duration { return OfMillis(r.Num(0)) }

// LockedError returns the error of a refused request.
func (r Reply) LockedError() *backend.LockedError { return &backend.LockedError{Holder: r.Holder()} }

// Holder returns the holder of a key that is held.
func (r Reply) Holder() backend.Holder {
	value := r.Str(2)
	h := backend.Holder{Left: max(r.Left(), 0), Token: r.Token()}
	owner, metadata, ok := ParseOwner(value)
	if !ok {
		h.Owner, h.Foreign, h.Token = strings.ToValidUTF8(value, "\uFFFD"), true, 0
		return h
	}
	h.Owner = owner
	h.Share, h.Slots, h.Metadata = cutShare(metadata)
	return h
}

// Ticket returns the number in the value of a key that is held, which Redlock uses as a ticket.
func (r Reply) Ticket() int64 {
	_, rest, _ := ParseOwner(r.Str(2))
	n, _ := CutNumber(rest)
	return n
}

// CutNumber cuts the number, of a token or of a ticket, off the text before the metadata. It
// returns 0 and the whole text if there is none.
func CutNumber(s string) (int64, string) {
	number, metadata, _ := strings.Cut(s, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, s
	}
	return n, metadata
}

// Info returns what a reply of Inspect says about the lock of that name.
func (r Reply) Info(name string) backend.Info {
	i := backend.Info{Name: name}
	waiters := 3
	switch r.Status {
	case Yes, OtherOwner:
		h := r.Holder()
		h.Age = r.since(int64(h.Token))
		i.Holder = &h
	case Shared:
		waiters = 1 + int(r.Num(0))
		all := r.holders()
		i.Holder, i.Others = &all[0], all[1:]
	}
	for n := waiters; n+1 < len(r.Rest); n += 2 {
		owner, rest, _ := ParseOwner(r.Str(n))
		ttl, metadata, _ := strings.Cut(rest, " ")
		c := backend.Contender{Owner: owner, Metadata: metadata, Age: r.since(r.Num(n + 1))}
		_, share, _ := strings.Cut(ttl, ":")
		c.Share = parseShare(share)
		i.Waiters = append(i.Waiters, c)
	}
	return i
}

// holders returns the holders of a reply of Inspect about a shared lock, in the order of their tokens.
func (r Reply) holders() []backend.Holder {
	var all []backend.Holder
	for n := 1; n+1 <= int(r.Num(0)); n += 2 {
		record := r.Str(n)
		_, rest, _ := ParseOwner(record)
		digits, _, _ := strings.Cut(rest, ":")
		h := Reply{Rest: []any{r.Num(n + 1), digits, record}}.Holder()
		h.Age = r.since(int64(h.Token))
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b backend.Holder) int { return cmp.Compare(a.Token, b.Token) })
	return all
}

// since returns the age of a token or of a score in the queue. Both are the server's
// clock, or later if that was set back; the age is then too short, at least 0.
func (r Reply) since(us int64) time.Duration {
	if us <= 0 || us > r.US {
		return 0
	}
	return time.Duration(r.US-us) * time.Microsecond
}

// CheckType returns an error if the key is of another type than string.
func (r Reply) CheckType(k Keys) error {
	if r.Status != WrongType {
		return nil
	}
	return fmt.Errorf("%w: redis key %.200q holds a %s, and a lock is a string: choose another name or prefix",
		backend.ErrInvalid, k.Lock, r.Str(0))
}

// OfMillis converts ms to a duration. It limits a value that a foreign client has set, so that sums do not overflow.
func OfMillis(ms int64) time.Duration {
	return time.Duration(min(ms, int64(10*MaxTTL/time.Millisecond))) * time.Millisecond
}

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

// Millis converts d to ms and rounds up: a lease must not be shorter than requested.
func Millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// TombstoneTTL is the lifetime of a tombstone, longer than the data of a dead connection may be delayed.
const TombstoneTTL = 5 * time.Minute

// Tombstone returns the argument for the lifetime of a tombstone, "0" if none is needed.
func Tombstone(needed bool) string {
	if !needed {
		return "0"
	}
	return fmt.Sprint(TombstoneTTL.Milliseconds())
}
