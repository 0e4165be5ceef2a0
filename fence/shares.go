package fence

import (
	"fmt"
	"sync"
)

// RWGuard protects one resource that readers and writers of a lock.RWMutex use. It refuses a
// write with a token lower than the greatest seen, and a read with a token lower than that of
// the last write: that writer may have changed what the reader reads. The zero value is ready.
// It is safe for concurrent use and must not be copied after first use.
type RWGuard struct {
	rw        sync.RWMutex // a Write locks it, a Read locks it for reading
	lastWrite uint64       // token; guarded by rw
	mu        sync.Mutex   // guards greatest in Reads, which hold rw together
	greatest  uint64       // token of all calls
}

// Write remembers the token of a writer and returns what f returns. If token is lower than the
// greatest seen, Write returns an error that matches ErrStale and does not call f. Write waits
// for all other calls to return, so f should be short and must not use the guard. The token is
// remembered even if f fails or panics.
func (g *RWGuard) Write(token uint64, f func() error) error {
	g.rw.Lock()
	defer g.rw.Unlock()
	if err := compare("", token, g.greatest); err != nil {
		return err
	}
	g.lastWrite, g.greatest = token, token
	return f()
}

// Read is Write for a reader, but refuses only a token that is lower than that of the last
// write. Reads wait for Writes and not for each other.
func (g *RWGuard) Read(token uint64, f func() error) error {
	g.rw.RLock()
	defer g.rw.RUnlock()
	if err := compare("", token, g.lastWrite); err != nil {
		return err
	}
	g.mu.Lock()
	g.greatest = max(g.greatest, token)
	g.mu.Unlock()
	return f()
}

// Slots protects a resource of n parts, such as shards, one for each slot of a lock.Semaphore.
// It keeps the greatest token of each slot: n holders are valid at a time, so one greatest token
// for all would refuse valid holders. The zero value is ready. It is safe for concurrent use and
// must not be copied after first use.
type Slots struct {
	mu     sync.Mutex // guards bySlot
	bySlot map[int]*Guard
}

// Do remembers token for each of the slots and returns what f returns. If token is lower than
// the greatest seen for one of them, Do returns an error that matches ErrStale and does not
// call f; the token may then be remembered for some of the other slots. Without slots Do
// returns an error that matches ErrNoToken.
//
// Calls with a slot in common wait for each other, so f should be short and must not use the
// guard. slots must be in rising order, as Lease.Slots returns them: otherwise calls may deadlock.
func (s *Slots) Do(slots []int, token uint64, f func() error) error {
	if len(slots) == 0 {
		return fmt.Errorf("fence: %w: the lease has no slots", ErrNoToken)
	}
	first, rest := slots[0], slots[1:]
	if len(rest) == 0 {
		return s.guard(first).do(slotKey(first), token, f)
	}
	return s.guard(first).do(slotKey(first), token, func() error { return s.Do(rest, token, f) })
}

func slotKey(slot int) string { return fmt.Sprintf("slot %d", slot) }

func (s *Slots) guard(slot int) *Guard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySlot == nil {
		s.bySlot = map[int]*Guard{}
	}
	if s.bySlot[slot] == nil {
		s.bySlot[slot] = &Guard{}
	}
	return s.bySlot[slot]
}
