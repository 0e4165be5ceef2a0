// Package fence is the resource's half of fencing, for a resource that lives in this
// process: it refuses whoever comes with a fencing token that is lower than one that
// has been here already.
//
//	var g fence.Guard
//
//	err := g.Do(token, func() error { return append(file, line) }) // token of lock.Lease.Token
//	if errors.Is(err, fence.ErrStale) {
//		// a holder whose lock has passed to another: nothing was written
//	}
//
// A lock in another process cannot stop a holder at the right instant if that is
// stopped itself, or its machine is. When it wakes up, what it does next comes with
// the token it had, and its successor's is greater.
//
// A guard knows the tokens that it has seen, and no others: it begins anew with its
// process, so it protects what lives no longer than that, or what this process alone
// writes to. Where writers are in several processes, the comparison belongs in the
// store, in the same step as the write: see docs/fencing.md. Compare tokens of one
// lock on one backend only.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale is matched by the error for a token lower than the greatest seen. The
// error is a [*StaleError], which has both.
var ErrStale = errors.New("stale fencing token")

// ErrNoToken is matched by the error for the token zero: the lock's backend has none,
// or its lease is one of several, whose Parts have them.
var ErrNoToken = errors.New("no fencing token")

// StaleError is an ErrStale with the tokens.
type StaleError struct {
	Key      string // of Guards; "" of a Guard
	Token    uint64 // that was refused
	Greatest uint64 // that had been seen
}

func (e *StaleError) Error() string {
	key := ""
	if e.Key != "" {
		key = fmt.Sprintf(" for %q", e.Key)
	}
	return fmt.Sprintf("fence: stale fencing token %d%s: %d has been seen", e.Token, key, e.Greatest)
}

// Is makes it match ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Guard protects one resource. The zero value is ready. It is safe for concurrent use
// and must not be copied after first use.
type Guard struct {
	mu       sync.Mutex
	greatest uint64
}

// Do runs f unless token is lower than the greatest seen; then it returns an error
// that matches ErrStale, and f is not run. Else it returns what f returns. One f runs
// at a time: while it runs others wait, newer ones too, so that no lower token
// can write after a greater one has been let in. f should be short, and must not use
// the guard. The token counts as seen even if f fails or panics.
func (g *Guard) Do(token uint64, f func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.see("", token); err != nil {
		return err
	}
	return f()
}

// Check returns nil and remembers the token unless it is lower than the greatest seen.
// It is for a caller that keeps everybody else from the resource, by a mutex of its
// own, from before Check until it is done; if not, a greater token may come in between,
// and Do is what is needed.
func (g *Guard) Check(token uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.see("", token)
}

// Greatest returns the greatest token seen, zero if none was.
func (g *Guard) Greatest() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.greatest
}

func (g *Guard) see(key string, token uint64) error {
	switch {
	case token == 0:
		return fmt.Errorf("fence: %w: the token is 0", ErrNoToken)
	case token < g.greatest:
		return &StaleError{Key: key, Token: token, Greatest: g.greatest}
	}
	g.greatest = token
	return nil
}
