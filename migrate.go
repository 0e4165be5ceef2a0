package lock

import (
	"context"
	"fmt"
)

// Phase is how far the move of a lock from one backend to another has come in one
// process.
//
//	phase   takes               may run beside
//	old     the old lock        old, both
//	both    the old, then       old, both, new
//	        the new one
//	new     the new lock        both, new
//
// Old and new must never run at the same time: they exclude nobody from each other.
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
	if _, ok := phaseNames[p]; !ok {
		return nil, p.invalid()
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads "old", "both" or "new".
func (p *Phase) UnmarshalText(text []byte) error {
	for phase, s := range phaseNames {
		if s == string(text) {
			*p = phase
			return nil
		}
	}
	return fmt.Errorf("%w phase %.100q: want old, both or new", ErrInvalid, text)
}

func (p Phase) invalid() error {
	return fmt.Errorf("%w phase %d: want PhaseOld, PhaseBoth or PhaseNew", ErrInvalid, int(p))
}

// Migrate returns a lock on its way from one backend, or name, to another, while
// processes that use it go on. Roll the phases out one after the other: PhaseOld is
// what runs before, PhaseBoth holds both, PhaseNew is what runs afterwards. In a mixed
// fleet of two neighbouring phases everybody takes one lock in common, so that there
// are never two holders. Begin a phase only when no process of the phase before the
// last is left, not one that is stopped either: with PhaseOld and PhaseNew at the same
// time there are two holders. Going back is the same in the other direction.
//
// In PhaseBoth the old lock is taken first, a loss of either ends the lease as with
// All, and nothing is granted while either backend is out of reach. It has no Token:
// tokens of two backends cannot be compared. Let the resource keep the greatest token
// of each backend apart, and have each of the lease's Parts checked against its own:
// then a holder of the phase before is refused by the token that both have. In the
// other phases the lease is that of the one lock.
//
// Migrate's name is that of new, in every phase. Old and new that are the same lock,
// or an unknown phase, are an ErrInvalid of Lock and TryLock.
func Migrate(old, new Mutex, phase Phase) Mutex {
	m := &migration{old: old, new: new, phase: phase}
	switch {
	case old == nil || new == nil:
		m.err = fmt.Errorf("%w Migrate: a lock is nil", ErrInvalid)
	case phaseNames[phase] == "":
		m.err = phase.invalid()
	case overlap(old, new):
		m.err = fmt.Errorf("%w Migrate: old and new are the same lock, %s", ErrInvalid, shorten(new.Name()))
	}
	return m
}

// migration is the Mutex that Migrate makes.
type migration struct {
	old, new Mutex
	phase    Phase
	err      error // why it can never be locked
}

// overlap tells whether x and y take a lock in common.
func overlap(x, y Mutex) bool {
	for _, a := range locksOf(x) {
		for _, b := range locksOf(y) {
			if sameLock(a, b) {
				return true
			}
		}
	}
	return false
}

func (m *migration) Name() string {
	if m.new == nil {
		return ""
	}
	return m.new.Name()
}

// parts are the locks that the phase takes, in the order in which it does.
func (m *migration) parts() []Mutex {
	switch m.phase {
	case PhaseOld:
		return []Mutex{m.old}
	case PhaseNew:
		return []Mutex{m.new}
	}
	return []Mutex{m.old, m.new}
}

func (m *migration) Lock(ctx context.Context) (*Lease, error) {
	if m.err != nil {
		return nil, jointError("lock", m.Name(), m.err)
	}
	parts := m.parts()
	if len(parts) == 1 {
		return parts[0].Lock(ctx)
	}
	return lockEach(ctx, m.Name(), parts)
}

func (m *migration) TryLock(ctx context.Context) (*Lease, error) {
	if m.err != nil {
		return nil, jointError("try", m.Name(), m.err)
	}
	parts := m.parts()
	if len(parts) == 1 {
		return parts[0].TryLock(ctx)
	}
	return takeEach(ctx, "try", m.Name(), parts, Mutex.TryLock)
}
