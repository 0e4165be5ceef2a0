package protocol

import (
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Once is a command that go-redis sends only once. A request can therefore arrive late
// only if the driver saw no reply to it; a tombstone refuses it then. go-redis still
// follows redirections: a redirected command was not executed.
type Once struct{ *redis.Cmd }

// NoRetry disables the retries of go-redis.
func (Once) NoRetry() bool { return true }

// Sending is the state of a request. A request that waits for a connection can be
// withdrawn, and then certainly is not executed. The zero value is ready.
type Sending struct{ state atomic.Int32 }

const (
	pending = iota
	written
	withdrawn
)

var errWithdrawn = errors.New("redis: the request was withdrawn")

// Withdraw prevents the request from being written to a connection. It returns false if
// it has been written.
func (s *Sending) Withdraw() bool { return s.state.CompareAndSwap(pending, withdrawn) }

// Written reports whether the request has been written to a connection. It is true for nil.
func (s *Sending) Written() bool { return s == nil || s.state.Load() == written }

// scriptName is the SHA or the source of a script. go-redis encodes arguments when it
// writes the request to a connection, not before.
type scriptName struct {
	*Sending
	text string
}

// MarshalBinary returns the text, or an error if the request has been withdrawn.
func (n scriptName) MarshalBinary() ([]byte, error) {
	if n.state.CompareAndSwap(pending, written) || n.Written() {
		return []byte(n.text), nil
	}
	return nil, errWithdrawn
}
