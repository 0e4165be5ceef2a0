package fence

import (
	"fmt"
	"sync"
)

// RWGuard protects one resource that readers and writers of a lock.RWMutex use. It refuses a
// write with a token below the greatest that it has seen, and a read with one below that of
// the last write: the writer that came after that reader may have changed what it reads. The
// zero value is ready. It is safe for concurrent use and must not be copied after first use.
type RWGuard struct {
	rw       sync.RWMutex // held for reading by reads, for writing by writes
	mu       sync.Mutex   // guards greatest
	greatest uint64       // of all
	written  uint64       // of the writes; guarded by rw
}

// Write remembers the token of a writer and returns what f returns. If the token is stale, it
// returns an error that matches ErrStale and does not call f. It waits for the functions of
// other calls.
func (g *RWGuard) Write(token uint64, f func() error) error {
	g.rw.Lock()
	defer g.rw.Unlock()
	if err := g.see(token, &g.greatest); err != nil {
		return err
	}
	g.written = token
	return f()
}

// Read remembers the token of a reader and returns what f returns, as Write does. Reads do not
// wait for each other.
func (g *RWGuard) Read(token uint64, f func() error) error {
	g.rw.RLock()
	defer g.rw.RUnlock()
	if err := g.see(token, &g.written); err != nil {
		return err
	}
	return f()
}

// see remembers a token that is not below *least.
func (g *RWGuard) see(token uint64, least *uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := compare("", token, *least); err != nil {
		return err
	}
	g.greatest = max(g.greatest, token)
	return nil
}

// Slots protects the parts of a resource that the permits of a lock.Semaphore stand for, such
// as n shards: it keeps the greatest token of each slot. One token for all cannot fence, since
// n holders are valid at a time. The zero value is ready. It is safe for concurrent use and
// must not be copied after first use.
type Slots struct {
	mu     sync.Mutex // guards guards
	guards map[int]*Guard
}

// Do remembers token for each of the slots of a lease and returns what f returns. If the token
// is lower than the greatest seen for one of them, Do returns an error that matches ErrStale
// and does not call f; it may then be remembered for some of the others, which the same lease
// held. Calls with a slot in common wait for each other. slots are those of Lease.Slots, in
// rising order.
func (s *Slots) Do(slots []int, token uint64, f func() error) error {
	if len(slots) == 0 {
		return fmt.Errorf("fence: %w: the lease has no slots", ErrNoToken)
	}
	slot, do := slots[0], f
	if len(slots) > 1 {
		do = func() error { return s.Do(slots[1:], token, f) }
	}
	return s.guard(slot).do(fmt.Sprintf("slot %d", slot), token, do)
}

func (s *Slots) guard(slot int) *Guard {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guards[slot]
	if g == nil {
		if s.guards == nil {
			s.guards = map[int]*Guard{}
		}
		g = &Guard{}
		s.guards[slot] = g
	}
	return g
}
