package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// All returns the lock that is held when all of ms are. It takes them in an order of
// its own, by name, so that two that are given the same locks in another order
// cannot wait for each other; those of one name in the order in which their clients
// were made, so make clients in the same order everywhere. An All among ms counts as
// its parts, a Migrate as one lock of its new name: if that is not the old one, those
// who name the old lock among ms and those who name the Migrate take them in different
// orders, so give Lock a deadline while both are there. No parts, or the same lock twice, is an ErrInvalid of Lock and TryLock.
//
// ctx bounds the whole of Lock. Either all are taken or none: if one cannot be had,
// those that were are freed again, last first, and the error is that of the one. If
// one is lost while others are waited for, Lock begins again.
//
// The lease ends as soon as any part ends, with that part's error. The other parts
// stay held until Unlock, since whoever works under the lease may need a moment to
// stop: call Unlock also after a loss. Unlock frees each part, whatever comes of the
// others; Expires is the earliest of the parts; Check and Extend go through all parts,
// and a failure of Extend may leave some extended; there is no Token and no Owner, but
// those of Parts.
//
// The name is that of the parts joined by "+", with a backslash before each "+" and
// backslash in them. Each part tells its own events.
func All(ms ...Mutex) Mutex {
	a := &all{}
	a.parts, a.err = canonical(ms)
	names := make([]string, len(a.parts))
	for i, m := range a.parts {
		names[i] = escapePart.Replace(m.Name())
	}
	a.name = strings.Join(names, "+")
	return a
}

var escapePart = strings.NewReplacer(`\`, `\\`, `+`, `\+`)

// all is the Mutex that All makes.
type all struct {
	name  string
	parts []Mutex // in canonical order
	err   error   // why it can never be locked
}

func (a *all) Name() string { return a.name }

func (a *all) Lock(ctx context.Context) (*Lease, error) {
	if a.err != nil {
		return nil, jointError("lock", a.name, a.err)
	}
	return lockEach(ctx, a.name, a.parts)
}

func (a *all) TryLock(ctx context.Context) (*Lease, error) {
	if a.err != nil {
		return nil, jointError("try", a.name, a.err)
	}
	return takeEach(ctx, "try", a.name, a.parts, Mutex.TryLock)
}

// lockEach takes all of ms, one after the other, and waits for each.
func lockEach(ctx context.Context, name string, ms []Mutex) (*Lease, error) {
	for {
		l, err := takeEach(ctx, "lock", name, ms, Mutex.Lock)
		var lost partLost
		switch {
		case err == nil || !errors.As(err, &lost):
			return l, err
		case ctx.Err() != nil:
			return nil, withContext(ctx, err)
		}
		// What was lost has to be waited for again: this cannot spin.
	}
}

// partLost: one that was taken has been lost while the next was waited for.
type partLost struct{ error }

func (p partLost) Unwrap() error { return p.error }

// takeEach takes all of ms in their order, or none.
func takeEach(ctx context.Context, op, name string, ms []Mutex, take func(Mutex, context.Context) (*Lease, error)) (l *Lease, err error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	taken := make([]*Lease, 0, len(ms))
	defer func() {
		if l != nil {
			return
		}
		for _, part := range taken {
			part.keepFrom(time.Time{}) // nobody has worked under it: no minimum hold
		}
		if uerr := unlockEach(ctx, taken); uerr != nil && !errors.Is(uerr, ErrLost) { // also if an observer panics
			err = fmt.Errorf("%w; %w", err, uerr)
		}
		err = jointError(op, name, withContext(ctx, err))
	}()
	for _, m := range ms {
		part, err := take(m, waiting)
		if err == nil {
			taken = append(taken, part)
			defer context.AfterFunc(part.Context(), func() { cancel(partLost{part.Err()}) })()
		}
		if lost := firstEnd(taken); lost != nil {
			return nil, partLost{lost}
		}
		if err != nil {
			return nil, err
		}
	}
	return newJoint(ctx, name, taken), nil
}

// firstEnd is why one of the leases has ended, or nil.
func firstEnd(ls []*Lease) error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// jointError adds which lock an error is about.
func jointError(op, name string, err error) error {
	return &Error{Op: op, Name: name, Err: err}
}

// canonical returns the parts of ms in the order in which everybody takes them.
func canonical(ms []Mutex) ([]Mutex, error) {
	var parts []Mutex
	for _, m := range ms {
		switch m := m.(type) {
		case nil:
			return nil, fmt.Errorf("%w All: a part is nil", ErrInvalid)
		case *all:
			if m.err != nil {
				return nil, m.err
			}
			parts = append(parts, m.parts...) // else the order would hold only within each
		case *migration:
			if m.err != nil {
				return nil, m.err
			}
			parts = append(parts, m)
		default:
			parts = append(parts, m)
		}
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w All: want at least one part", ErrInvalid)
	}
	slices.SortStableFunc(parts, func(x, y Mutex) int { return rankOf(x).compare(rankOf(y)) })
	var locks []Mutex
	for _, p := range parts {
		for _, one := range locksOf(p) {
			if slices.ContainsFunc(locks, func(o Mutex) bool { return sameLock(o, one) }) {
				return nil, fmt.Errorf("%w All: %s is there twice", ErrInvalid, shorten(one.Name()))
			}
			locks = append(locks, one)
		}
	}
	return parts, nil
}

// rank is the place of a part among others: the same in every process that makes
// its clients in the same order.
type rank struct {
	name, backend string
	client        uint64
}

func (r rank) compare(o rank) int {
	return cmp.Or(strings.Compare(r.name, o.name), strings.Compare(r.backend, o.backend), cmp.Compare(r.client, o.client))
}

func rankOf(m Mutex) rank {
	switch m := m.(type) {
	case *mutex:
		return rank{m.name, m.client.caps.Name, m.client.seq}
	case *migration:
		// its own name in every phase, so that processes of different phases agree
		r := rankOf(m.new)
		r.name = m.Name()
		return r
	}
	return rank{name: m.Name()}
}

// locksOf are the locks that m takes.
func locksOf(m Mutex) (locks []Mutex) {
	switch m := m.(type) {
	case nil:
	case *all:
		for _, p := range m.parts {
			locks = append(locks, locksOf(p)...)
		}
	case *migration:
		return append(locksOf(m.old), locksOf(m.new)...) // both, whatever the phase: the next phase must be possible
	default:
		locks = []Mutex{m}
	}
	return locks
}

// sameLock tells whether two would exclude each other, as far as can be seen.
func sameLock(x, y Mutex) bool {
	mx, ok := x.(*mutex)
	my, ok2 := y.(*mutex)
	if ok && ok2 {
		return mx.client == my.client && mx.name == my.name
	}
	return reflect.TypeOf(x) == reflect.TypeOf(y) && reflect.TypeOf(x).Comparable() && x == y
}
