package places

import (
	"context"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const (
	maxChecks  = 4                     // requests in flight
	checkPause = 10 * time.Millisecond // before a request, if the one before had several places
	checkLimit = 10 * time.Second      // of a request
)

// checks makes one request of the checks of many places. A check is sent at once, unless others come at the same time.
type checks struct {
	mu         sync.Mutex
	waiting    []check
	collecting bool // a request is about to be sent for those that wait
	sending    int
	many       bool // the last request had several places
}

type check struct {
	place  Place
	until  time.Time // for how long the caller waits
	answer chan checked
}

type checked struct {
	change Change
	err    error
}

// check returns how a place is.
func (c *checks) check(ctx context.Context, b *Backend, p Place) (Change, error) {
	one := check{place: p, answer: make(chan checked, 1)}
	var bounded bool
	if one.until, bounded = ctx.Deadline(); !bounded {
		one.until = time.Now().Add(checkLimit)
	}
	c.mu.Lock()
	c.waiting = append(c.waiting, one)
	if !c.collecting && c.sending < maxChecks {
		c.collecting = b.life.Go(func() { c.send(b) })
	}
	c.mu.Unlock()
	select {
	case r := <-one.answer:
		return r.change, r.err
	case <-ctx.Done():
		return Unchanged, ctx.Err()
	case <-b.life.Context().Done():
		return Unchanged, backend.ErrClosed
	}
}

// send sends requests as long as places wait and no other request is about to be sent for them.
func (c *checks) send(b *Backend) {
	for again := true; again; {
		c.mu.Lock()
		many := c.many
		c.mu.Unlock()
		if many {
			call.Sleep(b.life.Context(), checkPause)
		}
		c.mu.Lock()
		all := c.waiting
		c.waiting, c.collecting, c.many = nil, false, len(all) > 1
		c.sending++
		c.mu.Unlock()
		c.request(b, all)
		c.mu.Lock()
		c.sending--
		again = !c.collecting && len(c.waiting) > 0
		c.collecting = c.collecting || again
		c.mu.Unlock()
	}
}

// request checks places, for as long as one of the callers waits.
func (c *checks) request(b *Backend, all []check) {
	places, until := make([]Place, len(all)), time.Time{}
	for i, one := range all {
		places[i] = one.place
		if one.until.After(until) {
			until = one.until
		}
	}
	ctx, cancel := context.WithDeadline(b.life.Context(), until)
	defer cancel()
	changes, err := b.svc.Check(ctx, places)
	for i, one := range all {
		r := checked{err: err}
		if err == nil {
			r.change = changes[i]
		}
		one.answer <- r
	}
}
