package queuetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// listen makes sure that events of a key arrive until the check ends. It returns false if the Service has none.
func (c *checker) listen(key string) bool {
	c.Helper()
	for _, p := range []process{c.p, c.q} {
		if p.pusher == nil {
			return false
		}
		c.Cleanup(p.pusher.Use(key))
		if err := p.pusher.Listen(c.Context(), key); err != nil {
			c.Fatalf("Listen: %v", err)
		}
		if !p.pusher.Listening(key) {
			c.Error("Listening is false after Listen")
		}
	}
	return true
}

// waitGranted waits for the event that an attempt was granted the key.
func (c *checker) waitGranted(p process, owner string) {
	c.Helper()
	granted := func(events []Event) bool {
		return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Granted })
	}
	if !p.recorder.wait(owner, granted) {
		c.Fatalf("the event of a grant did not arrive within %v", waitLimit)
	}
}

// Waiters are granted the key in their order.
func (c *checker) order() {
	events := c.listen(c.prefix)
	first := c.request(c.prefix)
	c.acquire(c.p, first, queue.NoQueue)
	both := []process{c.p, c.q}
	var waiters []backend.Request
	for i := range 60 {
		req := c.request(c.prefix)
		waiters = append(waiters, req)
		if a := c.acquire(both[i%2], req, queue.Join); a.Granted || !a.NoPlace {
			c.Fatalf("waiter %d: %+v", i, a)
		}
	}
	c.end(c.p, queue.Release, first)
	last := uint64(0)
	for i, req := range waiters {
		if events {
			c.waitGranted(both[i%2], req.Owner)
		}
		a := c.acquire(both[i%2], req, queue.Expect)
		if !a.Granted || a.Token <= last {
			c.Fatalf("waiter %d, after token %d: %+v", i, last, a)
		}
		last = a.Token
		c.end(both[i%2], queue.Release, req)
	}
}

// Readers of one process that are granted the key at once are renewed by one call, and ended by one, while a writer waits.
// An attempt in them that holds nothing does not concern the others.
func (c *checker) crowd() {
	const n, missing = 100, 37
	events := c.listen(c.prefix)
	first, writer := c.request(c.prefix), c.request(c.prefix)
	c.acquire(c.q, first, queue.NoQueue)
	var holds []queue.Hold
	var ends []queue.End
	for i := range n {
		req := c.request(c.prefix)
		req.Share = backend.Reader
		if i != missing {
			c.acquire(c.p, req, queue.Join)
		}
		holds = append(holds, queue.Hold{Key: req.Key, Owner: req.Owner, Share: req.Share, TTL: time.Hour})
		ends = append(ends, queue.End{Request: req})
	}
	c.acquire(c.q, writer, queue.Join)
	pass := c.end(c.q, queue.Release, first).Pass
	for i := 0; pass < 0 && i < n; i++ {
		passed, err := c.q.Pass(c.Context(), c.prefix, false)
		if err != nil {
			c.Fatalf("Pass: %v", err)
		}
		pass = passed.Pass
	}
	for i, r := range c.p.Renew(c.Context(), holds) {
		if held := i != missing; held && r.Err != nil || !held && !errors.Is(r.Err, backend.ErrLost) {
			c.Fatalf("Renew of reader %d: %v; it holds the key: %v", i, r.Err, held)
		}
	}
	a := c.acquire(c.q, writer, queue.Expect)
	if low := time.Hour - time.Minute; a.Granted || a.Left < low || a.Left > time.Hour+c.h.Rounding {
		c.Fatalf("behind %d readers: got %+v, want that the first lease ends in %v", n-1, a, time.Hour)
	}
	if passed, err := c.q.Pass(c.Context(), c.prefix, false); err != nil || passed.Pass != 0 {
		c.Errorf("Pass: got %+v, %v, want that all readers have claimed the key", passed, err)
	}
	for i, e := range c.p.End(c.Context(), ends) {
		if held := i != missing; e.Err != nil || e.Held != held {
			c.Fatalf("Release of reader %d: %+v; it holds the key: %v", i, e, held)
		}
	}
	if events {
		c.waitGranted(c.q, writer.Owner)
	}
	if a := c.acquire(c.q, writer, queue.Expect); !a.Granted {
		c.Errorf("got %+v, want that the writer holds the key", a)
	}
}

// Many waiters of a dead process delay the one behind them by one provisional grant, however many requests it takes to
// remove them.
func (c *checker) deadWaiters() {
	events := c.listen(c.prefix)
	first := c.request(c.prefix)
	c.acquire(c.q, first, queue.NoQueue)
	for range 400 {
		req := c.request(c.prefix)
		req.TTL = 300 * time.Millisecond
		c.acquire(c.p, req, queue.Join)
	}
	last := c.request(c.prefix)
	c.acquire(c.q, last, queue.Join)
	e := c.end(c.q, queue.Release, first)
	if d := e.Pass - 300*time.Millisecond; d.Abs() > c.h.Rounding {
		c.Errorf("Release: the provisional grant lasts for %v, want 300ms", e.Pass)
	}
	time.Sleep(310 * time.Millisecond)
	for i := 0; ; i++ {
		passed, err := c.q.Pass(c.Context(), c.prefix, false)
		if err != nil {
			c.Fatalf("Pass: %v", err)
		}
		if passed.Pass >= 0 {
			break
		}
		if i == 400 {
			c.Fatal("Pass returns a negative time again and again")
		}
	}
	if events {
		c.waitGranted(c.q, last.Owner)
	}
	if a := c.acquire(c.q, last, queue.Expect); !a.Granted {
		c.Errorf("got %+v, want that the last waiter holds the key", a)
	}
}

// A Service whose connection for events has ended says that, and events arrive again when it is restored.
func (c *checker) connection() {
	if c.h.Disconnect == nil || !c.listen(c.prefix) {
		return
	}
	connect := c.h.disconnect(c, c.p, c.prefix)
	ctx, cancel := context.WithTimeout(c.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.p.pusher.Listen(ctx, c.prefix); !errors.Is(err, context.DeadlineExceeded) {
		c.Errorf("Listen without a connection: got error %v, want that of its context", err)
	}
	connect()
	first, waiter := c.request(c.prefix), c.request(c.prefix)
	c.acquire(c.q, first, queue.NoQueue)
	c.acquire(c.p, waiter, queue.Join)
	c.end(c.q, queue.Release, first)
	c.waitGranted(c.p, waiter.Owner)
}
