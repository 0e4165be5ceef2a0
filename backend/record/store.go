package record

import (
	"context"
	"encoding/json"
	"errors"
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
	// record when it has not been written for ttl and [Options.Margin], and not earlier. ttl is zero
	// if the record is free: the record still has the token, and still refuses late requests.
	Write(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error)
}

// Item is a record as the service has it.
type Item struct {
	// Value is what was written. A record without a value is free.
	Value []byte
	// Version changes with each write. It is "" if there is no record.
	Version string
	// Idle is for how long the record was not written, by the clock of the service; zero if
	// the service does not say it. If the service does not remove records either, a client that only
	// tries, and has not watched the record for its TTL, never gets the lock of a dead holder.
	Idle time.Duration
}

// value is what a record has. Each write changes it: the owner is new for each attempt, and
// Writes counts those of an attempt.
type value struct {
	Held     bool   `json:"held"`
	Owner    string `json:"owner"` // of a free record: who wrote it
	Writes   int    `json:"writes"`
	Token    uint64 `json:"token"` // of the holder, or of the last one
	TTL      int64  `json:"ttl_ms"`
	Metadata string `json:"metadata,omitempty"`
	// Since and Renewed are wall-clock times of the holder, for those who look.
	Since   int64 `json:"since_ms,omitempty"`
	Renewed int64 `json:"renewed_ms,omitempty"`
	// foreign: another program wrote the record.
	foreign bool
}

const maxForeign = 64 // bytes of a foreign record that name its owner

func decode(item Item) value {
	if len(item.Value) == 0 { // no record, or one that another program has emptied
		return value{}
	}
	var v value
	if err := json.Unmarshal(item.Value, &v); err != nil || v.Owner == "" {
		text := item.Value
		return value{Held: true, Owner: string(text[:min(len(text), maxForeign)]), foreign: true}
	}
	return v
}

func (v *value) encode() []byte {
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
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// holder describes the holder by the wall clock of this machine.
func (v *value) holder() backend.Holder {
	h := backend.Holder{Contender: backend.Contender{Owner: v.Owner, Metadata: v.Metadata}, Token: v.Token, Foreign: v.foreign}
	if v.foreign {
		return h
	}
	now := time.Now()
	h.Age = max(0, now.Sub(time.UnixMilli(v.Since)))
	h.Left = min(max(time.Millisecond, v.ttl()-now.Sub(time.UnixMilli(v.Renewed))), v.ttl())
	return h
}
