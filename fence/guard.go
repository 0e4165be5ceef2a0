// Package fence refuses stale fencing tokens for a resource in this process.
//
//	var g fence.Guard
//
//	err := g.Do(token, func() error { return append(file, line) }) // token of lock.Lease.Token
//	if errors.Is(err, fence.ErrStale) {
//		// the lock was granted to another holder since; nothing was written
//	}
//
// A lock service cannot stop a holder whose process or machine is stopped. When that
// holder continues, its token is lower than the one of its successor.
//
// A guard forgets its tokens when the process ends, so it protects only a resource that
// ends with the process, or that no other process writes to. For any other resource the
// store must compare the tokens in the same step as the write: see docs/fencing.md.
// Compare only tokens of one lock on one backend.
package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale is matched by the error for a token lower than the greatest seen. That error
// is a [*StaleError].
var ErrStale = errors.New("stale fencing token")

// ErrNoToken is matched by the error for the token 0: the backend has no tokens, or the
// lease is one of several locks, whose Parts have them.
var ErrNoToken = errors.New("no fencing token")

// StaleError is an ErrStale with the two tokens.
type StaleError struct {
	Key      string // the key of Guards, or "slot 3" of Slots; "" for other guards
	Token    uint64 // the refused one
	Greatest uint64 // seen so far
}

func (e *StaleError) Error() string {
	key := ""
	if e.Key != "" {
		key = fmt.Sprintf(" for %q", e.Key)
	}
	return fmt.Sprintf("fence: stale fencing token %d%s: %d has been seen", e.Token, key, e.Greatest)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Guard protects one resource. The zero value is ready. It is safe for concurrent use
// and must not be copied after first use.
type Guard struct {
	mu       sync.Mutex
	greatest uint64
}

// Do remembers token and returns what f returns. If token is lower than the greatest
// seen, Do returns an error that matches ErrStale and does not call f. Calls wait for
// each other, also those with a greater token, so that no f still runs under a lower
// token than the greatest. f should be short and must not use the guard. The token is
// remembered even if f fails or panics.
func (g *Guard) Do(token uint64, f func() error) error { return g.do("", token, f) }

// Check remembers token, or returns an error that matches ErrStale if token is lower
// than the greatest seen. The caller must exclude others from the resource, by its own
// mutex, from before Check until it has finished; otherwise use Do.
func (g *Guard) Check(token uint64) error { return g.do("", token, noop) }

// Greatest returns the greatest token seen, or 0.
func (g *Guard) Greatest() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.greatest
}

func (g *Guard) do(key string, token uint64, f func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := compare(key, token, g.greatest); err != nil {
		return err
	}
	g.greatest = token
	return f()
}

// compare returns an error if token is 0, or less than least.
func compare(key string, token, least uint64) error {
	switch {
	case token == 0:
		return fmt.Errorf("fence: %w: the token is 0", ErrNoToken)
	case token < least:
		return &StaleError{Key: key, Token: token, Greatest: least}
	}
	return nil
}

func noop() error { return nil }
