package zookeeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// exclusionCheck fails the test if a client is granted the lock while another one trusts
// its own grant, or if a token does not rise.
type exclusionCheck struct {
	t  *testing.T
	mu sync.Mutex

	holder string
	token  uint64
	count  int
	order  []string
}

// enter is called with a new lease, leave before its unlock or after its end.
func (c *exclusionCheck) enter(client string, l *lock.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	token, _ := l.Token()
	if token <= c.token {
		c.t.Errorf("%s: token %d after %d", client, token, c.token)
	}
	if c.holder != "" {
		c.t.Errorf("%s was granted token %d while %s trusted its lock, token %d", client, token, c.holder, c.token)
	}
	c.token, c.holder = token, client
	c.count++
	c.order = append(c.order, client)
	// A lease that is lost ends before another client can be granted.
	context.AfterFunc(l.Context(), func() { c.leave(client, token) })
}

func (c *exclusionCheck) leave(client string, token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder == client && c.token == token {
		c.holder = ""
	}
}

func (c *exclusionCheck) grants() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// leaveIfEnded calls leave if the lease has ended: that is an instant, which may be before the
// callback of enter runs.
func (c *exclusionCheck) leaveIfEnded(client string, l *lock.Lease) {
	if l.Err() != nil {
		token, _ := l.Token()
		c.leave(client, token)
	}
}

// takeTurns locks and unlocks with all clients until stop is called.
func takeTurns(t *testing.T, check *exclusionCheck, clients []*lock.Client, key string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i, c := range clients {
		name := fmt.Sprintf("client %d", i)
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Mutex(key).Lock(ctx)
				if err != nil {
					continue // the service may be out of reach
				}
				check.enter(name, l)
				select {
				case <-time.After(5 * time.Millisecond): // the work
				case <-l.Done():
				}
				token, _ := l.Token()
				check.leave(name, token)
				_ = l.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// progress waits for more grants.
func progress(t *testing.T, check *exclusionCheck, more int, what string) {
	t.Helper()
	want := check.grants() + more
	eventually(t, 30*time.Second, what, func() error {
		if n := check.grants(); n < want {
			return fmt.Errorf("%d grants are missing", want-n)
		}
		return nil
	})
}
