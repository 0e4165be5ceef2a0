// Package cleanup repeats requests in the background until the service acknowledges them.
package cleanup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
	"github.com/interlock-go/lock/internal/trust"
)

// maxRequests is how many cleanups of a client are in flight. The others wait in a queue:
// an outage must not pile up requests, which would delay renewals when it ends.
const maxRequests = 16

// Cleaner frees what requests may have left at a service.
type Cleaner struct {
	Tasks  *task.Group
	Caps   backend.Capabilities              // of the backend
	Failed func(what, key string, err error) // reports a cleanup that was given up

	mu      sync.Mutex // guards the fields below
	working int        // goroutines
	queue   []*cleanup
}

// cleanup is a request that is to be acknowledged.
type cleanup struct {
	req          backend.Request
	what         string
	send         func(context.Context) error
	deadline     time.Time // zero: none
	acknowledged chan bool // capacity 1
}

// Start repeats f, which frees what req left, until it is acknowledged. With LossTTL it
// gives up after kept, when the service has freed it. The channel receives one value:
// whether f was acknowledged.
func (c *Cleaner) Start(req backend.Request, kept time.Duration, what string, f func(context.Context) error) <-chan bool {
	j := &cleanup{req: req, what: what, send: f, acknowledged: make(chan bool, 1)}
	if c.Caps.Loss == backend.LossTTL { // a session or a process keeps its grants as long as it lives
		j.deadline = time.Now().Add(max(kept, 100*time.Millisecond))
	}
	if !c.Tasks.BeginCleanup() {
		j.acknowledged <- false
		return j.acknowledged
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.working < maxRequests {
		c.working++
		go c.work(j)
	} else {
		c.queue = append(c.queue, j)
	}
	return j.acknowledged
}

// work sends j and then those in the queue. One that fails goes to the end of the queue.
func (c *Cleaner) work(j *cleanup) {
	pause := retry.Default()
	for ; j != nil; j = c.next() {
		switch err := c.try(j); {
		case err == nil || errors.Is(err, backend.ErrLost):
			pause = retry.Default()
			c.end(j, true)
		case retry.Transient(err) && j.waits(c.Tasks.Working(), pause):
			c.mu.Lock()
			c.queue = append(c.queue, j)
			c.mu.Unlock()
		default:
			c.Failed(j.what, j.req.Key, err)
			c.end(j, false)
		}
	}
}

func (c *Cleaner) next() *cleanup {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.working--
		return nil
	}
	j := c.queue[0]
	c.queue = c.queue[1:]
	return j
}

var errGivenUp = errors.New("not acknowledged in time")

func (c *Cleaner) try(j *cleanup) error {
	ctx, cancel := j.bound(c.Tasks.Working())
	defer cancel()
	if ctx.Err() != nil {
		return errGivenUp
	}
	return retry.Once(ctx, j.req.TTL, j.send)
}

func (j *cleanup) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.deadline.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, j.deadline)
}

// waits waits for a pause. It returns false if the time of j is over.
func (j *cleanup) waits(ctx context.Context, pause *retry.Backoff) bool {
	ctx, cancel := j.bound(ctx)
	defer cancel()
	return pause.Wait(ctx)
}

func (c *Cleaner) end(j *cleanup, acknowledged bool) {
	j.acknowledged <- acknowledged
	c.Tasks.Done()
}

// Abandon abandons an attempt of b in the background, for as long as a request of it may
// be executed.
func (c *Cleaner) Abandon(b backend.Backend, req backend.Request) <-chan bool {
	kept := max(req.TTL+trust.Margin(req.TTL), c.Caps.Lateness)
	return c.Start(req, kept, "abandoned attempt", func(ctx context.Context) error { return b.Abandon(ctx, req) })
}

// Release releases a grant of req in the background.
func (c *Cleaner) Release(g backend.Grant, req backend.Request, what string) {
	c.Start(req, req.TTL+trust.Margin(req.TTL), what, g.Release)
}
