// Package workload is the workload of clients during faults: they lock, try, wait, hold,
// extend, write to a resource that checks tokens, and unlock, and record each call and
// return. Clients run in the test's process and in processes of their own, which can be
// stopped, killed, and started with a wrong clock; see [Main].
package workload

import (
	"sync"

	"github.com/interlock-go/lock"
)

// Kind is the kind of an Op.
type Kind string

// The kinds of an Op.
const (
	Acquired Kind = "acquired"
	Refused  Kind = "refused" // a Lock or TryLock without a grant
	// Ending is recorded at the end of a holder's trust, before the request to release
	// leaves the process. Call is that instant. If the process is killed before it
	// records Released or Lost, the service may have executed the request.
	Ending   Kind = "ending"
	Released Kind = "released"
	Lost     Kind = "lost"  // a hold whose end is not known; Call is the end of its holder's trust, Ret when it was noticed
	Trusted  Kind = "until" // a hold was renewed
	// Downgraded is recorded before the request: from Call on the holder acts as a reader.
	Downgraded Kind = "downgraded"
	Wrote      Kind = "wrote"
)

// Op is one operation of a client, or one event. Times are those of [Monotonic], which are
// comparable between processes.
type Op struct {
	Kind   Kind       `json:"k"`
	Key    int        `json:"n"`
	Worker int        `json:"w"`
	Hold   int        `json:"h,omitempty"` // which grant, unique in a run
	Call   int64      `json:"c"`
	Ret    int64      `json:"r,omitempty"`
	Token  uint64     `json:"t,omitempty"`
	Share  lock.Share `json:"m,omitzero"` // what was asked for
	Slots  []int      `json:"l,omitempty"`
	Until  int64      `json:"u,omitempty"` // a hold is trusted until then, zero: as long as the process lives
	Waited int64      `json:"q,omitempty"` // when it was notified that it waits, zero: never
	Try    bool       `json:"y,omitempty"`
	OK     bool       `json:"ok,omitempty"` // a write was accepted
	// Sure is set on a write within its holder's trust from call to return.
	Sure bool `json:"s,omitempty"`
	// Early is set on a loss that came before the end of trust.
	Early bool `json:"e,omitempty"`
	// Stolen is set on an early loss that the reply to a release reported.
	Stolen bool   `json:"x,omitempty"`
	Err    string `json:"err,omitempty"`
}

// Resource is guarded by the locks. It refuses tokens lower than the highest that it has seen.
type Resource interface {
	Write(key int, token uint64) (accepted bool)
}

// Fence is a Resource in this process.
type Fence struct {
	mu   sync.Mutex
	seen map[int]uint64
}

// Write implements Resource.
func (f *Fence) Write(key int, token uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[int]uint64{}
	}
	if token < f.seen[key] {
		return false
	}
	f.seen[key] = token
	return true
}
