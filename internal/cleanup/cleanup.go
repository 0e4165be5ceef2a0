// Package cleanup repeats requests in the background until the service acknowledges them.
package cleanup

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
	"github.com/interlock-go/lock/internal/trust"
)

// Cleaner frees what requests may have left at a service.
type Cleaner struct {
	Tasks  *task.Group
	Loss   backend.Loss                      // of the backend
	Failed func(what, key string, err error) // reports a cleanup that was given up
}

// Start repeats f, which frees what req left, until it is acknowledged. With LossTTL it
// gives up after kept, when the service has freed it. The channel receives one value:
// whether f was acknowledged.
func (c *Cleaner) Start(req backend.Request, kept time.Duration, what string, f func(context.Context) error) <-chan bool {
	acknowledged := make(chan bool, 1)
	if !c.Tasks.BeginCleanup() {
		acknowledged <- false
		return acknowledged
	}
	go func() {
		defer c.Tasks.Done()
		ctx, cancel := c.Tasks.Working(), context.CancelFunc(func() {})
		if c.Loss == backend.LossTTL { // a session or a process keeps its grants as long as it lives
			ctx, cancel = context.WithTimeout(ctx, max(kept, 100*time.Millisecond))
		}
		defer cancel()
		err := retry.Do(ctx, req.TTL, f)
		if err != nil && !errors.Is(err, backend.ErrLost) {
			c.Failed(what, req.Key, err)
			acknowledged <- false
			return
		}
		acknowledged <- true
	}()
	return acknowledged
}

// Abandon abandons an attempt of b in the background.
func (c *Cleaner) Abandon(b backend.Backend, req backend.Request) <-chan bool {
	return c.Start(req, req.TTL+trust.Margin(req.TTL), "abandoned attempt", func(ctx context.Context) error {
		return b.Abandon(ctx, req)
	})
}

// Release releases a grant of req in the background.
func (c *Cleaner) Release(g backend.Grant, req backend.Request, what string) {
	c.Start(req, req.TTL+trust.Margin(req.TTL), what, g.Release)
}
