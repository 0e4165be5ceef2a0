package queuetest

import (
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

// EventKind is the method of queue.Events that reports an Event.
type EventKind string

// The kinds of events.
const (
	Granted   EventKind = "Granted"
	LeaseEnds EventKind = "LeaseEnds"
	Asked     EventKind = "Asked"
	Removed   EventKind = "Removed"
	Lost      EventKind = "Lost"
)

// Event is what a Service reports to a process.
type Event struct {
	Process string
	Kind    EventKind
	Key     string // of Granted, Asked and Removed
	Owner   string
	Left    time.Duration // of LeaseEnds
	Grant   queue.Grant   // of Granted; without Received
}

// String returns the event as a table of a failure shows it.
func (e Event) String() string {
	switch e.Kind {
	case Granted:
		return fmt.Sprintf("Granted(%s, token %d, slots %v, for %v)", e.Owner, e.Grant.Token, e.Grant.Slots, e.Grant.TTL)
	case LeaseEnds:
		return fmt.Sprintf("LeaseEnds(%s, %v)", e.Owner, e.Left)
	}
	return fmt.Sprintf("%s(%s)", e.Kind, e.Owner)
}
