package protocol

import (
	"math/rand/v2"
	"time"
)

// Bounds of the polls of waiters.
const (
	ForeignPoll = time.Second      // behind a foreign holder, which sends no notification
	MaxPoll     = 30 * time.Second // the part of a waiter's own TTL that counts
)

// PollSlack returns the delay that keeps a poll from arriving just before the expiry.
func PollSlack() time.Duration { return time.Millisecond + rand.N(time.Millisecond) }

// Arguments of ACQUIRE: whether the attempt joins the queue.
const (
	NoQueue   = "0"
	JoinQueue = "1"
)
