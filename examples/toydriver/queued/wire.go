package queued

import (
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// A request is POST /do with a body of JSON: operations, of which each is atomic for itself.
type request struct {
	Process    string
	Operations []operation
}

type operation struct {
	Kind                   string // of the constants below
	Key                    []byte // JSON strings cannot have any bytes
	Owner, Metadata        string
	Share                  backend.Share
	TTL                    time.Duration
	NoQueue, Exactly, Late bool // as in queue.Attempt, queue.Hold and queue.End
	Leaves                 bool // of a pass
}

// The operations.
const (
	acquire   = "acquire"
	renew     = "renew"
	release   = "release" // and to abandon, which is the same for the server
	downgrade = "downgrade"
	breakAny  = "break"
	pass      = "pass"
)

// result is the reply to an operation. Each has Now and Pass of the answer, and only an acquire the rest of it.
type result struct {
	queue.Answer
	Held    bool            // of a renewal or an end: the owner held the key
	Broken  *backend.Holder // of a break: Holder of queue.Ended
	Invalid string          // why the operation can never succeed
}

// GET /events?process=P is a stream of these, one in a line of JSON. The first has the kind connected.
type event struct {
	Kind           string
	Key            []byte
	Owner          string
	Left           time.Duration // of leaseEnds
	Token          uint64        // the rest is of granted
	Slots          []int
	Expires, Lease time.Duration
}

// The events.
const (
	connected = "connected"
	granted   = "granted"
	leaseEnds = "leaseEnds"
	asked     = "asked"
	removed   = "removed"
	lost      = "lost"
)
