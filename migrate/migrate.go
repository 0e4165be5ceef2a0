// Package migrate moves a lock from one backend to another while processes use it.
package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/interlock-go/lock"
)

// Phase is the step of a migration that a process is in.
//
//	phase   locks                      may run beside
//	old     the old lock               old, both
//	both    the old, then the new one  old, both, new
//	new     the new lock               both, new
type Phase int

// The phases, in the order in which a rollout goes through them.
const (
	PhaseOld Phase = iota + 1
	PhaseBoth
	PhaseNew
)

var phaseNames = map[Phase]string{PhaseOld: "old", PhaseBoth: "both", PhaseNew: "new"}

func (p Phase) String() string {
	if s, ok := phaseNames[p]; ok {
		return s
	}
	return fmt.Sprintf("Phase(%d)", int(p))
}

// MarshalText returns "old", "both" or "new".
func (p Phase) MarshalText() ([]byte, error) {
	if phaseNames[p] == "" {
		return nil, p.invalid()
	}
	return []byte(phaseNames[p]), nil
}

// UnmarshalText reads "old", "both" or "new".
func (p *Phase) UnmarshalText(text []byte) error {
	for phase, s := range phaseNames {
		if s == string(text) {
			*p = phase
			return nil
		}
	}
	return fmt.Errorf("%w phase %.100q: want old, both or new", lock.ErrInvalid, text)
}

func (p Phase) invalid() error {
	return fmt.Errorf("%w phase %d: want PhaseOld, PhaseBoth or PhaseNew", lock.ErrInvalid, int(p))
}

// New returns a lock that moves from old to new, a lock on another backend or with
// another name, while processes use it. Roll out PhaseOld, PhaseBoth and PhaseNew one
// after the other, or back in reverse order. Processes in neighbouring phases have one
// lock in common, so there is at most one holder. Begin a phase only when all processes,
// stopped ones included, are in the phase before: PhaseOld and PhaseNew do not exclude
// each other.
//
// In PhaseBoth the lease ends when either lease ends, and nothing is granted while
// either backend is unavailable. The lease has no Token, because tokens of two backends
// cannot be compared: the resource keeps the greatest token of each backend and compares
// each of the lease's Parts. A stale holder in the phase before is then refused, too.
//
// The name is that of new, in every phase. Inspect asks old until PhaseNew. If old and
// new have a lock in common, or phase is unknown, Lock and TryLock return
// lock.ErrInvalid.
func New(old, new lock.Mutex, phase Phase) lock.Mutex {
	m := &migration{}
	if new != nil {
		m.name = new.Name()
	}
	var both lock.Mutex
	both, m.err = lock.All(old, new).(interface {
		InOrder(name string) (lock.Mutex, error)
	}).InOrder(m.name)
	if m.err != nil {
		return m
	}
	m.parts = []lock.Mutex{old, new}
	switch phase {
	case PhaseOld:
		m.locked, m.inspected = old, old
	case PhaseBoth:
		m.locked, m.inspected = both, old
	case PhaseNew:
		m.locked, m.inspected = new, new
	default:
		m.parts, m.err = nil, phase.invalid()
	}
	return m
}

// migration is the lock that New returns.
type migration struct {
	name              string
	parts             []lock.Mutex // both in every phase, so that the next phase is possible
	locked, inspected lock.Mutex
	err               error // why it can never be locked
}

func (m *migration) Name() string        { return m.name }
func (m *migration) Parts() []lock.Mutex { return m.parts }

func (m *migration) Lock(ctx context.Context) (*lock.Lease, error) {
	if m.err != nil {
		return nil, m.wrap("lock", m.err)
	}
	return m.locked.Lock(ctx)
}

func (m *migration) TryLock(ctx context.Context) (*lock.Lease, error) {
	if m.err != nil {
		return nil, m.wrap("try", m.err)
	}
	return m.locked.TryLock(ctx)
}

// Inspect is that of the lock that is asked in this phase, for package elect.
func (m *migration) Inspect(ctx context.Context) (lock.Info, error) {
	if m.err != nil {
		return lock.Info{}, m.wrap("inspect", m.err)
	}
	i, ok := m.inspected.(interface {
		Inspect(ctx context.Context) (lock.Info, error)
	})
	if ok {
		return i.Inspect(ctx)
	}
	return lock.Info{}, m.wrap("inspect", errors.ErrUnsupported)
}

func (m *migration) wrap(op string, err error) error {
	return &lock.Error{Op: op, Name: m.name, Err: err}
}
