package places

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Service is the driver of a service. Its methods may be called concurrently, return when ctx ends, and mark errors as
// those of a backend.Backend are.
//
// Package placestest has a Service in memory that is the reference for what each method does.
type Service interface {
	// Open opens a session for places with that TTL.
	Open(ctx context.Context, ttl time.Duration) (Session, error)
	// Put puts a place. It is idempotent on the owner: an attempt has one place in a session, however often its
	// request is executed. The error matches ErrEnded if the session has ended: then nothing remains of the attempt.
	Put(ctx context.Context, p Put) (Answer, error)
	// Read returns the places of a key whose order is at most upTo; if last is not zero, the last of them are enough. If upTo is
	// All it knows what was put before the call, and has the metadata and the tokens of the holders.
	Read(ctx context.Context, key string, upTo uint64, last int) (Queue, error)
	// Watch calls changed for each change of a place, or for each end of a place of the key if p.ID is "", from when it
	// returns nil until stop is called, with the ID of the place and, if it has ended, a Version after all that it had.
	// Changes that one client sees are in the order in which they were made. changed does not block, and gets nothing after
	// Interrupted. checked: the request has also compared the place with its Version, and changed was called if it differs;
	// else the caller checks the place.
	Watch(ctx context.Context, key string, p Place, changed func(Place, Change)) (stop func(), checked bool, err error)
	// Check returns how each place is, compared with its Version. If they are many it is several requests. Of places that
	// this Service has put it need not report updates.
	Check(ctx context.Context, all []Place) ([]Change, error)
	// Update writes the shares and the slots of places of one key, all of them or none, and sets their Versions: done is
	// false if one of them does not exist with its Version.
	Update(ctx context.Context, all []Place) (done bool, err error)
	// Remove removes places, all in one request if it can: the result at i is that of the removal at i.
	Remove(ctx context.Context, all []Removal) []Removed
	// Close ends what the driver has opened, after the sessions. No method is called after it.
	Close(ctx context.Context) error
}

// All is the order of a Read for the whole queue.
const All = math.MaxInt64

// HoldWatcher is a Service that notices by itself when a place that holds has ended, and calls Events.Broken.
type HoldWatcher interface {
	// Held is called for each place that holds. It does not block.
	Held(p Place)
}

// Viewer is a Service that can report each change of a queue. A process then follows the queues in which few sessions have
// places: a cycle costs two events, and no request but those to put and to remove a place.
type Viewer interface {
	// View calls changed for each change of a place of a key, in the order in which they were made, from when it returns
	// nil until stop is called. A place that was put or updated is reported as it is then, as Updated. One that has ended
	// has its ID, and a Version after all that it had. changed does not block, and gets nothing after Interrupted. Each
	// place whose Order is greater than since is reported.
	View(ctx context.Context, key string, changed func(Place, Change)) (since uint64, stop func(), err error)
}

// ErrEnded is the error of a request of a session that has ended.
var ErrEnded = errors.New("the session has ended")

// Session is what keeps the places of a client.
type Session interface {
	// Trust returns when the last request was sent that the service has answered, and for how long from then it keeps
	// the places of the session. The TTL is zero if places do not end by time.
	Trust() (sent time.Time, ttl time.Duration)
	// Renew returns when Trust counts from at most age ago. If the answer to a request proves only that earlier ones have
	// arrived, as in ZooKeeper, it may be up to an eighth of the TTL more.
	Renew(ctx context.Context, age time.Duration) error
	// Done is closed when the session has ended, as far as this process knows: before the service ends its places by
	// time, and soon after it has ended them for another reason.
	Done() <-chan struct{}
	// Err returns why it has ended. It matches backend.ErrLost.
	Err() error
	// Close ends the session, and with it all of its places.
	Close(ctx context.Context) error
}

// Place is a place in the queue of a key.
type Place struct {
	backend.Contender        // its Share is that of a reader after a downgrade
	ID                string // names the place; only one that is put after it has ended may have it too
	Order             uint64 // its position
	Token             uint64 // zero if it is not known; it is of the place of a Put
	Version           uint64 // changes with each update
	Slots             []int  // of permits; empty until they are recorded
	Session           string // names its session; needed by a Viewer only
	Foreign           bool   // put by another program
}

// Holder returns what others see of a place that holds.
func (p *Place) Holder() backend.Holder {
	return backend.Holder{Contender: p.Contender, Token: p.Token, Slots: p.Slots, Foreign: p.Foreign}
}

// Queue is the places of a key, or the last of them, in their order.
type Queue struct {
	Places []Place
	More   bool // there may be others before the first
	Count  int  // of all places of the key; zero if it is not known
}

// Holders returns how many of the first places hold the key. It is zero if the first are not known.
func (q *Queue) Holders() int {
	if q.More {
		return 0
	}
	var a backend.Admission
	for i := range q.Places {
		if !a.Next(q.Places[i].Share) {
			return i
		}
	}
	return len(q.Places)
}

// Fits reports whether a share behind all places would hold the key.
func (q *Queue) Fits(s backend.Share) bool {
	n := q.Holders()
	if q.More || n < len(q.Places) {
		return false
	}
	var a backend.Admission
	for i := range q.Places {
		a.Next(q.Places[i].Share)
	}
	return a.Next(s)
}

// Index returns where a place is, -1 if it is not there.
func (q *Queue) Index(id string) int {
	for i := range q.Places {
		if q.Places[i].ID == id {
			return i
		}
	}
	return -1
}

// position is Index for an event, which is mostly of the first place, or of a new one behind all others.
func (q *Queue) position(p *Place) int {
	if n := len(q.Places); n == 0 || p.Order > q.Places[n-1].Order {
		return -1
	}
	return q.Index(p.ID)
}

// remove removes a place. That of the first one moves no other.
func (q *Queue) remove(i int) {
	if i == 0 {
		q.Places = q.Places[1:]
		return
	}
	q.Places = slices.Delete(q.Places, i, i+1)
}

// find returns where a place of that order is, or belongs.
func (q *Queue) find(order uint64) (int, bool) {
	return slices.BinarySearchFunc(q.Places, order, func(p Place, o uint64) int { return cmp.Compare(p.Order, o) })
}

// FreeSlots returns the slots of a share that holds behind all places.
func (q *Queue) FreeSlots(s backend.Share) []int {
	var taken []int
	for _, p := range q.Places {
		taken = append(taken, p.Slots...)
	}
	return s.FreeSlots(taken)
}

// Unrecorded returns the places that hold permits whose slots are not recorded, at most n of them, with the slots that
// they get: the lowest that are free, in the order of the queue.
func (q *Queue) Unrecorded(n int) (all []Place) {
	var taken []int
	for _, p := range q.Places {
		taken = append(taken, p.Slots...)
	}
	for _, p := range q.Places[:q.Holders()] {
		if p.Share.Capacity > 0 && len(p.Slots) == 0 && len(all) < n {
			p.Slots = p.Share.FreeSlots(taken)
			taken = append(taken, p.Slots...)
			all = append(all, p)
		}
	}
	return all
}

// Mode says whether a Put enters the queue.
type Mode int

// The modes.
const (
	Try    Mode = iota // only if the place holds the key at once
	Enter              // in any case; the attempt waits by the answer
	Follow             // in any case; others of this process wait before it, so the answer need not have the queue
)

// Put is a request for a place at the end of the queue of a key.
type Put struct {
	backend.Request
	Session Session
	Mode    Mode
	// Number is the same in all requests of an attempt. Another attempt for the key has it only after the place of this one
	// has ended, and if no removal of that can still be executed.
	Number int
}

// Answer is the reply to a Put.
type Answer struct {
	Place *Place // the place of the attempt; nil after a Try that was refused
	Holds bool   // the place holds the key, and has its slots. If it is not set, it may do so by Queue
	// Queue is the queue up to Place, or the last three of it, unless Holds is set or the mode was Follow. Without a
	// place, it is the queue or its first part.
	Queue Queue
	// Unanswered: a request that was sent before the one with this answer may still be executed.
	Unanswered bool
}

// Change is what became of a place.
type Change int

// The changes.
const (
	Unchanged   Change = iota
	Updated            // it has another Version, or a Viewer reports that it was put
	Ended              // it does not exist any more
	Interrupted        // the watch has ended: what happens from now on is not reported
)

// Removal removes the place of an attempt.
type Removal struct {
	Place                   // its ID is "" if it is not known
	Key     string          //
	Session Session         // of the last request of the attempt; nil if it is not known
	Asked   backend.Request // that request
	Number  int             // its number, if Session is not nil
	Late    bool            // the service may still execute an earlier Put of the attempt. It must refuse it
	Break   bool            // the process of the attempt is to be notified; only the place with that Order is removed
}

// Removed is the reply to a Removal.
type Removed struct {
	Existed bool // the place was there
	Err     error
}

// Events are what a Service reports, beside its watches and sessions. [Backend] implements it.
type Events interface {
	// Broken reports that the grant of an attempt was broken. It does not block.
	Broken(owner string)
}
