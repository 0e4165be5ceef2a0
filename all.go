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

	"github.com/interlock-go/lock/internal/retry"
)

// All returns the lock that is held while all of ms are held. Lock and TryLock lock all of ms
// or none, in an order of their own: by name, so that two calls with the same locks in
// another order cannot wait for each other. Locks with the same name are locked in the order
// in which their clients were made, so make clients in the same order everywhere. An All among
// ms counts as its parts. A lock that is being migrated counts as one lock with its new name.
// If that is not the old one, clients that name the old lock and clients that name the
// migration lock them in different orders, so give Lock a deadline while both exist. If ms is
// empty or contains a lock twice, Lock and TryLock return an ErrInvalid.
//
// ctx bounds the whole of Lock, WithWait of a part the wait for that part. If one part cannot
// be locked, the others are unlocked again, last first, and Lock returns the error of that
// part. If one is lost while others are waited for, Lock begins again.
//
// The lease ends as soon as any part ends, with the error of that part. The other parts stay
// held until Unlock, since work under the lease may need a moment to stop: call Unlock also
// after a loss. Unlock unlocks each part, also if one fails. Expires is the earliest of the
// parts. Check and Extend go through all parts, and an Extend that fails may leave some
// extended. There is no Token and no Owner, but those of Parts.
//
// The name is that of the parts joined by "+", with a backslash before each "+" and backslash
// in them. Each part reports its own events.
func All(ms ...Mutex) Mutex {
	given, err := flatten(ms)
	parts := slices.SortedStableFunc(slices.Values(given), func(x, y Mutex) int { return rankOf(x).compare(rankOf(y)) })
	if err == nil {
		err = validParts(parts)
	}
	names := make([]string, len(parts))
	for i, m := range parts {
		names[i] = escapePart.Replace(m.Name())
	}
	return &all{inOrder{name: strings.Join(names, "+"), parts: parts, err: err}, given}
}

// composed is a Mutex that locks other locks. In All it counts as one lock with its own
// Name, and as each of its Parts when All looks for a lock that occurs twice. Name and Parts
// must be the same in every process; Parts may contain locks that this process does not
// lock. A composed lock without Parts can never be locked.
type composed interface {
	Mutex
	Parts() []Mutex
}

var escapePart = strings.NewReplacer(`\`, `\\`, `+`, `\+`)

// all is the Mutex that All makes, with its parts in canonical order.
type all struct {
	inOrder
	given []Mutex // the parts in the order in which All got them
}

// InOrder returns the lock of a name that locks the parts of a in the order in which All got
// them, or an error if they cannot be locked together. Package migrate finds it by the method.
// Every process must use the same order, or two of them can wait for each other.
func (a *all) InOrder(name string) (Mutex, error) {
	return &inOrder{name: name, parts: a.given}, a.err
}

// inOrder is the Mutex that locks its parts one after the other.
type inOrder struct {
	name  string
	parts []Mutex
	err   error // why it can never be locked
}

func (o *inOrder) Name() string   { return o.name }
func (o *inOrder) Parts() []Mutex { return o.parts }

func (o *inOrder) Lock(ctx context.Context) (*Lease, error) {
	if o.err != nil {
		return nil, opError("lock", o.name, o.err)
	}
	return lockInOrder(ctx, o.name, o.parts)
}

func (o *inOrder) TryLock(ctx context.Context) (*Lease, error) {
	if o.err != nil {
		return nil, opError("try", o.name, o.err)
	}
	return acquireInOrder(ctx, "try", o.name, o.parts, Mutex.TryLock)
}

// lockInOrder locks all of ms, one after the other, and waits for each.
func lockInOrder(ctx context.Context, name string, ms []Mutex) (*Lease, error) {
	for {
		l, err := acquireInOrder(ctx, "lock", name, ms, Mutex.Lock)
		var lost partLostError
		switch {
		case err == nil || !errors.As(err, &lost):
			return l, err
		case ctx.Err() != nil:
			return nil, retry.WithContext(ctx, err)
		}
		// The part that was lost has to be waited for again: this cannot spin.
	}
}

// partLostError is the error of a part that was lost while the next was waited for.
type partLostError struct{ error }

func (p partLostError) Unwrap() error { return p.error }

// acquireInOrder locks all of ms in their order, or none.
func acquireInOrder(ctx context.Context, op, name string, ms []Mutex, acquire func(Mutex, context.Context) (*Lease, error)) (l *Lease, err error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := make([]*Lease, 0, len(ms))
	defer func() {
		if l != nil {
			return
		}
		for _, part := range held {
			part.of.SetMinHoldStart(time.Time{}) // no work was done under it: no minimum hold
		}
		if unlockErr := unlockEach(ctx, held); unlockErr != nil && !errors.Is(unlockErr, ErrLost) { // also if an observer panics
			err = fmt.Errorf("%w; %w", err, unlockErr)
		}
		err = opError(op, name, retry.WithContext(ctx, err))
	}()
	for _, m := range ms {
		part, err := acquire(m, waiting)
		if err == nil {
			held = append(held, part)
			defer context.AfterFunc(part.Context(), func() { cancel(partLostError{part.Err()}) })()
		}
		if lost := firstEnd(held); lost != nil {
			return nil, partLostError{lost}
		}
		if err != nil {
			return nil, err
		}
	}
	return newCombinedLease(ctx, name, held), nil
}

// firstEnd returns why one of the leases has ended, or nil.
func firstEnd(ls []*Lease) error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// flatten replaces each All among ms by its parts.
func flatten(ms []Mutex) (parts []Mutex, err error) {
	for _, m := range ms {
		switch m := m.(type) {
		case nil:
			return nil, errNilPart
		case *all:
			if m.err != nil {
				return nil, m.err
			}
			parts = append(parts, m.parts...) // so that one order holds for all
		default:
			parts = append(parts, m)
		}
	}
	return parts, nil
}

var errNilPart = fmt.Errorf("%w parts: one is nil", ErrInvalid)

// validParts returns an error if parts cannot be locked together.
func validParts(parts []Mutex) error {
	if len(parts) == 0 {
		return fmt.Errorf("%w parts: want at least one", ErrInvalid)
	}
	var locks []Mutex
	for _, p := range parts {
		if p == nil {
			return errNilPart
		}
		of := locksOf(p)
		if len(of) == 0 {
			return fmt.Errorf("%w parts: %s can never be locked", ErrInvalid, shorten(p.Name()))
		}
		for _, one := range of {
			if slices.ContainsFunc(locks, func(o Mutex) bool { return sameLock(o, one) }) {
				return fmt.Errorf("%w parts: %s is there twice", ErrInvalid, shorten(one.Name()))
			}
			locks = append(locks, one)
		}
	}
	return nil
}

// rank orders the parts of All: the same in every process that makes
// its clients in the same order.
type rank struct {
	name, backend string
	client        uint64
}

func (r rank) compare(o rank) int {
	return cmp.Or(strings.Compare(r.name, o.name), strings.Compare(r.backend, o.backend), cmp.Compare(r.client, o.client))
}

func rankOf(m Mutex) (r rank) {
	switch m := m.(type) {
	case clientLock:
		l := m.lock()
		return rank{l.name, l.client.name, l.client.seq}
	case composed:
		if parts := m.Parts(); len(parts) > 0 {
			r = rankOf(parts[len(parts)-1])
		}
	}
	r.name = m.Name()
	return r
}

// locksOf returns the locks that m locks.
func locksOf(m Mutex) (locks []Mutex) {
	c, ok := m.(composed)
	if !ok {
		return []Mutex{m}
	}
	for _, p := range c.Parts() {
		locks = append(locks, locksOf(p)...)
	}
	return locks
}

// sameLock reports whether x and y exclude each other, as far as can be seen.
func sameLock(x, y Mutex) bool {
	lx, ok := x.(clientLock)
	ly, ok2 := y.(clientLock)
	if ok && ok2 {
		return lx.lock().client == ly.lock().client && lx.lock().name == ly.lock().name
	}
	return reflect.TypeOf(x) == reflect.TypeOf(y) && reflect.TypeOf(x).Comparable() && x == y
}
