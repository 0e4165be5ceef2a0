// Package quorum is what package redlock uses of package redislock: the Service of one server, which is a node of a
// Redlock.
package quorum

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// NewNode returns a node that uses client. Package redislock sets it.
var NewNode func(client *redis.Client, o Options, events Events) Node

// Options are the settings of a node.
type Options struct {
	Prefix        string
	AllowEviction bool
	Durable       bool          // the run of the server does not matter
	Retention     time.Duration // of the fence counter of a lock after a lease
	Own           bool          // Close closes the client
}

// Node is a server on which locks are held without a queue. Its methods do what those of queue.Service do, of which
// they are a part.
type Node interface {
	// Open checks the settings of the server and loads the scripts.
	Open(ctx context.Context) (server.Findings, error)
	// Acquire asks for a key once. The token is that of the key at this server, and least at least. It also raises the
	// token of a grant that the attempt has already, but not that in the answer.
	Acquire(ctx context.Context, req backend.Request, least uint64) (Answer, error)
	Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed
	End(ctx context.Context, e queue.End) Ended
	// Mark writes the marker of the server if its life is still the one that was seen. It returns the present one.
	Mark(ctx context.Context, seen Life, marker string) (Life, error)
	Inspect(ctx context.Context, key string) (backend.Info, error)
	List(ctx context.Context, yield func(backend.Info) bool) error
	Ping(ctx context.Context) error

	// Use, Listening and Listen are those of queue.Pusher, for Events.Released.
	Use(key string) (stop func())
	Listening(key string) bool
	Listen(ctx context.Context, key string) error

	// Go runs f as a task that Close waits for, and Context ends with Close. Go returns false after it.
	Go(f func()) bool
	Context() context.Context
	Close(ctx context.Context) error
}

// Answer is a reply to Acquire.
type Answer struct {
	queue.Answer
	Life Life
}

// Life says which of its lives a server is in, and what clients have written about that.
type Life struct {
	Now    time.Duration // the clock of the server
	Run    string        // it changes with each start; "" if the server is durable
	Marker string        // "" if there is none
}

// Ended is a reply to End.
type Ended struct {
	queue.Ended
	Waiting int // processes that use the key on this server, if the owner held it
}

// Events are what a node reports. No method blocks.
type Events interface {
	// Released reports that the lease of an owner ends when left has passed, to one of a number of processes.
	Released(key, owner string, left time.Duration, processes int)
	// Lost reports that a grant was broken.
	Lost(owner string)
	// Interrupted reports that events may have been lost.
	Interrupted()
}
