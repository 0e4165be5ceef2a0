package conformance

import (
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/interlock-go/lock/backend"
)

// History records what the clients of one key saw, and [History.Check] reports
// whether it is what the clients of one lock with rising tokens can see, whole or in shares.
// Times are compared on the monotonic clock. It may be used by any number of goroutines
// at once.
//
// An acquire that was refused, cancelled or not answered is left out: refused or
// cancelled it changes nothing, and one that was not answered takes the lock at
// some time and gives it back at some later time, both unseen.
type History struct {
	fenced bool
	start  time.Time

	mu     sync.Mutex // guards the fields below
	ops    []porcupine.Operation
	shares []backend.Share // of the holds, the first of which is number 1
}

// NewHistory begins the history of a free lock. With fenced, its
// tokens must rise.
func NewHistory(fenced bool) *History { return &History{fenced: fenced, start: time.Now()} }

// Acquired records the grant of a share: a Lock or TryLock that was called and has returned at
// these times. The result names the hold to the other methods. client is a small
// number, for those who look at the picture.
func (h *History) Acquired(client int, share backend.Share, call, ret time.Time, token uint64) (hold int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shares = append(h.shares, share)
	h.addLocked(client, opInput{kind: opAcquire, hold: len(h.shares), token: token}, token, h.at(call), h.at(ret))
	return len(h.shares)
}

// Downgraded records that an exclusive hold becomes that of a reader at some time after from,
// or never.
func (h *History) Downgraded(client, hold int, from time.Time) {
	h.add(client, opInput{kind: opLower, hold: hold}, nil, from, never)
}

// Released records that a hold was given back, and that the service acknowledged
// it.
func (h *History) Released(client, hold int, call, ret time.Time) {
	h.add(client, opInput{kind: opRelease, hold: hold}, nil, call, h.at(ret))
}

// Lost records a lease that ends at some unknown time, but not before its holder
// ceased to trust it at from: it was lost, or its release was not acknowledged.
// The holder has its share until then.
func (h *History) Lost(client, hold int, from time.Time) {
	h.add(client, opInput{kind: opEnd, hold: hold}, nil, from, never)
}

// Wrote records a write, with the hold's token, to a resource that refuses tokens
// lower than the highest it has seen, and whether it was accepted.
func (h *History) Wrote(client, hold int, call, ret time.Time, token uint64, accepted bool) {
	h.add(client, opInput{kind: opWrite, hold: hold, token: token}, accepted, call, h.at(ret))
}

// Len returns how many operations were recorded.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

const never = math.MaxInt64

func (h *History) at(t time.Time) int64 { return int64(t.Sub(h.start)) }

func (h *History) add(client int, in opInput, out any, call time.Time, ret int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(client, in, out, h.at(call), ret)
}

func (h *History) addLocked(client int, in opInput, out any, call, ret int64) {
	in.share = h.shares[in.hold-1]
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: ret})
}
