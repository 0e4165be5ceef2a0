package record

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/interlock-go/lock/backend"
)

// ErrChanged is what [Store.Write] returns if the service has refused the write because the
// record has another version.
var ErrChanged = errors.New("the record has another version")

// Store is the service. Its methods must be safe for concurrent use and return soon after
// their context ends, with its error beside others. A key is Request.Key: the Store escapes it.
type Store interface {
	// Read returns the record of a key. It must not return an older version than that of a
	// write that was answered before, as a replica may. Do not mark its errors by
	// backend.Uncertain: a failed read leaves nothing behind.
	Read(ctx context.Context, key string) (Item, error)
	// Write writes the record if its version is the given one; the version "" means that there
	// is no record. It returns the new version, or "" if the service does not return it, and
	// ErrChanged if the write was certainly refused. Another error means that the
	// outcome is unknown, unless it is marked by backend.NotExecuted. The service may remove the
	// record when it has not been written for ttl and a margin of minutes, and not earlier. ttl is zero
	// if the record is free: the record still has the token, and still refuses late requests.
	Write(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error)
}

// Timer is implemented by a Store whose service can measure a minimum hold: the time for which a lock is kept after
// its lease has ended. A client that comes later then knows when it is over. No holder relies on the lock meanwhile, so
// the clock of the service may be used, but only for that: never for a lease. Without a Timer a client waits until
// it has itself seen the record for that time.
type Timer interface {
	// Start is called before the record of a key is written that is kept for d.
	Start(ctx context.Context, key string, d time.Duration) error
	// Elapsed returns for how long the record has been kept, or free, by a clock of the service alone, or zero while that is
	// not known. It is called for records that are kept, and for free ones for which dead processes may wait.
	Elapsed(ctx context.Context, key string, item Item) (time.Duration, error)
}

// Item is a record as the service has it.
type Item struct {
	// Value is what was written. A record without a value is free.
	Value []byte
	// Version changes with each write. It is "" if there is no record.
	Version string
	// Written is when the record was written, by the clock of the service, for a [Timer]. It is not used otherwise. It is
	// zero if the service does not date records: Elapsed is called for records that are kept only then.
	Written time.Time
}

// format is the version of the form of records. A record of another version is treated as that of another program: a
// client that does not know all of its fields would remove them.
const format = 2

// former is the version of records without waiting processes, which are read and not written.
const former = 1

// value is what a record has. Each write changes it: the owner is new for each attempt, and
// Writes counts those of an attempt.
type value struct {
	Version  int    `json:"version"` // format
	Held     bool   `json:"held"`
	Kept     bool   `json:"kept,omitempty"` // the lease has ended, and its minimum hold has not
	Owner    string `json:"owner"`          // of a free record: who wrote it
	Writes   uint64 `json:"writes"`
	Token    uint64 `json:"token"` // of the holder, or of the last one
	TTL      int64  `json:"ttl_ms"`
	Metadata string `json:"metadata,omitempty"`
	// Age is for how long the holder had held the lock when it wrote the record, by its monotonic clock.
	Age int64 `json:"age_ms,omitempty"`
	// Process is that of the holder.
	Process string `json:"process,omitempty"`
	// Waiting are the processes that wait, in the order of their arrival.
	Waiting []place `json:"waiting,omitempty"`
	// Origin is the version that the holder has written last, if a waiter has written the record since then, and Edits is
	// how often waiters have.
	Origin string `json:"origin,omitempty"`
	Edits  uint64 `json:"edits,omitempty"`

	foreign   bool          // another program wrote the record
	unchanged time.Duration // for how long this client has seen the record unchanged
}

const (
	maxForeign = 64                                      // bytes of a foreign record that name its owner
	maxToken   = math.MaxInt64 / 2                       // no count comes so far
	maxMillis  = int64(math.MaxInt64 / time.Millisecond) // the longest Duration
)

func decode(item Item) value {
	if len(item.Value) == 0 { // no record, or one that another program has emptied
		return value{}
	}
	var v value
	if err := json.Unmarshal(item.Value, &v); err != nil || !v.valid() {
		return foreign(item)
	}
	return v
}

// foreign returns the value of a record that another program wrote.
func foreign(item Item) value {
	text := item.Value
	return value{Held: true, Owner: string(text[:min(len(text), maxForeign)]), foreign: true}
}

// valid reports whether this package can have written the record.
func (v *value) valid() bool {
	if v.Version != format && v.Version != former || !v.validPlaces() || v.Owner == "" || v.Token > maxToken || v.Age < 0 || v.Age > maxMillis {
		return false
	}
	if v.Held {
		return v.TTL > 0 && v.TTL <= maxMillis
	}
	return v.TTL == 0 && !v.Kept
}

func (v *value) encode() []byte {
	v.Version = format
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings
	}
	return text
}

func (v *value) ttl() time.Duration {
	return time.Duration(min(v.TTL, backend.MaxTTL.Milliseconds())) * time.Millisecond
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	n := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		n++
	}
	return min(n, maxMillis)
}

// holder describes the holder by what this client has seen: the age is that of the last write and the time since, and
// what is left is at most that.
func (v *value) holder() backend.Holder {
	h := backend.Holder{Contender: backend.Contender{Owner: v.Owner, Metadata: v.Metadata}, Token: v.Token, Foreign: v.foreign}
	if v.foreign {
		return h
	}
	h.Age = min(time.Duration(v.Age)*time.Millisecond, math.MaxInt64-v.unchanged) + v.unchanged
	h.Left = max(time.Millisecond, v.ttl()-v.unchanged)
	return h
}
