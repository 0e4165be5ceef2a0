package queue

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	// ProvisionalTTL is the longest lease of a grant that was pushed, and how long a waiter may take to show that it
	// is alive.
	ProvisionalTTL = backend.MaxProvisionalTTL
	// ShortProvisionalTTL is the longest lease of a grant that was pushed after one that ended unclaimed: its process
	// is often dead too. A process that is alive claims its grant in this time also on a busy machine.
	ShortProvisionalTTL = ProvisionalTTL / 4
	// Informed is how many of the first waiters a Service looks at to find the watcher, and the processes that it
	// informs of a provisional grant.
	Informed = 16
	// InformEvery is how often, for a key, it informs others than the watcher of one.
	InformEvery = time.Second
	// InformSlack is by how much earlier than before a lease must end for a Service to inform the watcher. A Service
	// that rounds the ends of leases would inform it without need.
	InformSlack = 20 * time.Millisecond
)

// Provisional returns how long a pushed grant to an attempt with that TTL lasts. lapsed: the last pushed grant of the key
// has ended unclaimed.
func Provisional(ttl time.Duration, lapsed bool) time.Duration {
	if lapsed {
		return min(ttl, ShortProvisionalTTL)
	}
	return min(ttl, ProvisionalTTL)
}

// Service is the driver of a service. Its methods may be called concurrently. Each makes one round trip (more only if
// the service has many dead waiters to remove), returns when ctx ends, and does not retry. A ctx may have no deadline,
// so the Service has a time limit of its own for a request. An error is marked as those of a backend.Backend are. The
// methods must be idempotent: an operation that is executed twice has the effect of one.
//
// Package queuetest has a Service in memory that is the reference for what each operation does, and checks another one.
type Service interface {
	// Acquire asks for a key once. If the attempt holds the key, it keeps its grant, for its TTL from now at least. If
	// the attempt has a place in the queue, it is granted from there. Otherwise it is granted only if those before it
	// have been and it fits. Else it enters the queue, unless its mode is NoQueue.
	Acquire(ctx context.Context, a Attempt) (Answer, error)
	// Renew extends grants, all in one round trip if it can: the result at i is that of the hold at i.
	Renew(ctx context.Context, holds []Hold) []Renewed
	// End ends grants and attempts, all in one round trip if it can: the result at i is that of the end at i.
	End(ctx context.Context, ends []End) []Ended
	// Pass does what every operation does to a key: it removes holders whose leases have ended, and admits waiters. A
	// process that leaves will not look again when the unclaimed grants of its requests end, so others are informed of
	// them.
	Pass(ctx context.Context, key string, leaves bool) (Passed, error)
	// Close ends what the driver has opened. No method is called after it.
	Close(ctx context.Context) error
}

// Pusher is a Service that reports events, by calling the methods of [Events]: those of the Backend that [New] makes of
// it, which the driver gives it before the Backend is used. It restores a connection for events that has ended. A
// Service that reports Lost does so also while no attempt waits.
type Pusher interface {
	// Use is called before an attempt asks for a key that it may wait for, and stop when it does not wait any more.
	Use(key string) (stop func())
	// Listening reports whether events of key would arrive now.
	Listening(key string) bool
	// Listen waits until Listening is true. It returns [ErrPoll] if there will be no events, and another error if it has
	// waited for as long as a request may take: to the attempt, that is an error of a request.
	Listen(ctx context.Context, key string) error
	// Doubt is called if an event that was sent for key has not arrived for a second.
	Doubt(key string)
}

// Unordered is a Service that keeps no queue: it grants a free key to the attempt that asks first, Mode means nothing to
// it, and it answers that a refused attempt has its place and watches. The attempts of a process get the key in the
// order of their arrival also then: one that comes while others wait sends no request before those have got it.
type Unordered interface {
	Service
	// Unordered does nothing.
	Unordered()
}

// Events are what a Pusher reports. No method blocks. [Backend] implements Events.
type Events interface {
	// Granted reports a provisional grant.
	Granted(Grant)
	// LeaseEnds reports that the lease that an attempt waits for ends when left has passed.
	LeaseEnds(owner string, left time.Duration)
	// Asked reports that the service wants to know whether an attempt, which waits for key, is alive.
	Asked(key, owner string)
	// Removed reports that an attempt, which waits for key, and maybe others of its process were removed from the queue.
	Removed(key, owner string)
	// Lost reports that a grant was broken.
	Lost(owner string)
	// Interrupted reports that events of a key may have been lost; "" means all keys. Its waiters ask. If a connection
	// has ended it is called when Listening is false, so that they do not expect events before it is restored.
	Interrupted(key string)
}

// Mode says whether an attempt enters the queue.
type Mode int

// The modes of an attempt.
const (
	NoQueue Mode = iota // it does not
	Join                // it does
	Expect              // it does, and should have a place in it
)

// Attempt is a request to acquire a key.
type Attempt struct {
	backend.Request
	Mode Mode
}

// Answer is a reply to an Attempt.
type Answer struct {
	Sent time.Time     // just before the request was sent
	Now  time.Duration // the clock of the service when it decided, since any fixed time; zero if it is not known

	// Granted: the attempt holds the key.
	Granted bool
	Token   uint64
	Slots   []int // of permits
	// Refused: the attempt was ended by an End with Late set. The other fields mean nothing.
	Refused bool

	// Holder is the holder whose lease ends first, if the attempt has not been granted the key.
	Holder backend.Holder
	// Left is the lease of the attempt, or of Holder. It is negative for a lease that does not end.
	Left time.Duration
	// NoPlace: the attempt was not in the queue when it asked. If it had a place before, it was removed, or it has a
	// grant of which an event is on its way.
	NoPlace bool
	// Watch: the attempt is to ask again when Left has passed. It is the watcher, or the grant of Holder is not
	// claimed.
	Watch bool
	// Ask is in how long the attempt is to ask again in any case, because the first waiter was asked whether it is
	// alive; zero if it was not.
	Ask time.Duration
	// Pass is in how long the shortest of the provisional grants ends that this request has made; zero if it has made
	// none. It is negative if the service has not done all that it can do now.
	Pass time.Duration
}

// Sooner returns the shorter of two values of Answer.Pass, for a Service that needed several requests.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Hold is a grant that is renewed.
type Hold struct {
	Key, Owner string
	Share      backend.Share // that of the attempt
	TTL        time.Duration
	Exactly    bool // the lease ends when TTL has passed, also if that is sooner than it would
}

// Renewed is the reply to a Hold. Err is backend.ErrLost if the owner does not hold the key.
type Renewed struct {
	Sent time.Time
	Now  time.Duration // as in Answer
	Pass time.Duration // as in Answer: a renewal admits waiters if the lease of another holder has ended
	Err  error
}

// Kind says what an End ends.
type Kind int

// The kinds of ends.
const (
	Release   Kind = iota // a grant
	Abandon               // a grant, or a place in the queue
	Downgrade             // the exclusive part of a grant: it becomes that of a reader. A reader stays one
	Break                 // the grant of an owner, or all if Owner is "", of another process
)

// End ends something of an attempt. Of its request only Key, Owner, Share, TTL and Metadata are used; of an attempt
// that this process does not know any more, only Key and Owner are set.
type End struct {
	backend.Request
	Kind Kind
	// Late: the service may still execute an earlier request of the attempt. It must refuse it.
	Late bool
}

// Ended is the reply to an End.
type Ended struct {
	Now    time.Duration   // as in Answer
	Held   bool            // the owner held the key
	Holder *backend.Holder // of a Break: the first holder that was removed or, if Held is false, one that holds the key
	Pass   time.Duration   // as in Answer
	Err    error
}

// Passed is the reply to Pass.
type Passed struct {
	Now time.Duration // as in Answer
	// Pass is in how long the shortest of the grants of the key ends that are not claimed; zero if there is none. It
	// may be negative, as in Answer.
	Pass time.Duration
}

// Grant is a provisional grant that was pushed.
type Grant struct {
	Key, Owner string
	Token      uint64
	Slots      []int
	Received   time.Time     // when the event arrived
	Expires    time.Duration // when the grant ends, by the clock of Answer.Now; zero if it is not known, or if the attempt must ask anyway
	TTL        time.Duration // for how long it was made
}

// ErrPoll is what [Pusher.Listen] returns if there will be no events: waiters ask at intervals.
var ErrPoll = errors.New("no events")
