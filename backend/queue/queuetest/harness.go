package queuetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

// Harness is what the checks need of a Service. Only Open is required.
type Harness struct {
	// Open returns the Service of a new process, which reports its events to events. All that are opened are processes of
	// one service. The checks close it. They do not compare events if it is not a queue.Pusher.
	//
	// The events of a key that the service sends to a process must arrive in the order in which they were sent.
	Open func(t testing.TB, events queue.Events) queue.Service

	// Disconnect ends the connection over which s gets events, and keeps s from restoring it until connect is called.
	// Disconnect returns when the service has noticed that, so that it cannot reach the process of s. The checks wait
	// until s has noticed it too (Interrupted is called, and Listening is false), and after connect until Listen returns.
	// Operations of s succeed meanwhile. Nil if the service cannot notice it, or s is not a queue.Pusher.
	Disconnect func(t testing.TB, s queue.Service) (connect func())

	// Rounding is by how much a time of the service may differ from the exact one: a millisecond if the service counts
	// those. Zero: the service rounds nothing, and reads its clock once in an operation.
	Rounding time.Duration

	// Virtual: the service is in memory, and the checks run in virtual time, each in a bubble of testing/synctest.
	Virtual bool
}

// waitLimit is how long a check waits for what should be there at once.
const waitLimit = 10 * time.Second

func (h Harness) run(t *testing.T, check func(t *testing.T)) {
	if h.Virtual {
		synctest.Test(t, check)
	} else {
		check(t)
	}
}

// process is a process of the service under test.
type process struct {
	queue.Service
	pusher   queue.Pusher // nil if it is none
	recorder *recorder
}

func (h Harness) open(t testing.TB) process {
	r := &recorder{events: map[string][]Event{}, changed: make(chan struct{})}
	s := h.Open(t, r)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	pusher, _ := s.(queue.Pusher)
	return process{s, pusher, r}
}

// disconnect ends the connection over which p gets events, until connect is called. Both return when the service and p
// have noticed it.
func (h Harness) disconnect(t testing.TB, p process, key string) (connect func()) {
	seen := p.recorder.interruptions()
	restore := h.Disconnect(t, p.Service)
	for listening := true; listening; listening = p.pusher.Listening(key) { // if so, that was about an earlier connection
		if !p.recorder.wait("", func([]Event) bool { return p.recorder.interrupted > seen }) {
			t.Errorf("Interrupted was not called within %v after Disconnect, or Listening is true after it", waitLimit)
			break
		}
		seen = p.recorder.interruptions()
	}
	return func() {
		restore()
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := p.pusher.Listen(ctx, key); err != nil {
			t.Errorf("Listen after connect: %v", err)
		}
	}
}

// recorder keeps the events of a process by the owner of the attempt.
type recorder struct {
	mu          sync.Mutex
	events      map[string][]Event
	interrupted int
	changed     chan struct{} // closed when there is something new
}

func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[e.Owner] = append(r.events[e.Owner], e)
	r.signal()
}

// signal wakes those that wait. The mutex is locked.
func (r *recorder) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Granted implements queue.Events.
func (r *recorder) Granted(g queue.Grant) {
	r.add(Event{Kind: Granted, Key: g.Key, Owner: g.Owner, Grant: g})
}

// LeaseEnds implements queue.Events.
func (r *recorder) LeaseEnds(owner string, left time.Duration) {
	r.add(Event{Kind: LeaseEnds, Owner: owner, Left: left})
}

// Asked implements queue.Events.
func (r *recorder) Asked(key, owner string) { r.add(Event{Kind: Asked, Key: key, Owner: owner}) }

// Removed implements queue.Events.
func (r *recorder) Removed(key, owner string) { r.add(Event{Kind: Removed, Key: key, Owner: owner}) }

// Lost implements queue.Events.
func (r *recorder) Lost(owner string) { r.add(Event{Kind: Lost, Owner: owner}) }

// Interrupted implements queue.Events.
func (r *recorder) Interrupted(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupted++
	r.signal()
}

func (r *recorder) interruptions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.interrupted
}

// wait waits until the events of an attempt are enough, and returns whether they are.
func (r *recorder) wait(owner string, enough func([]Event) bool) bool {
	limit := time.After(waitLimit)
	for {
		r.mu.Lock()
		over, changed := enough(r.events[owner]), r.changed
		r.mu.Unlock()
		if over {
			return true
		}
		select {
		case <-changed:
		case <-limit:
			return false
		}
	}
}

// take removes and returns the events of an attempt.
func (r *recorder) take(owner string) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer delete(r.events, owner)
	return r.events[owner]
}

func newOwner() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}
