package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// Test checks what every Service must keep and [Differential] does not reach: keys and metadata of any value, many
// grants in one call, many waiters, concurrent calls, contexts that end, and the connection for events.
func Test(t *testing.T, h Harness) {
	for _, c := range []struct {
		name  string
		check func(*checker)
	}{
		{"keys", (*checker).keys},
		{"metadata", (*checker).metadata},
		{"sizes", (*checker).sizes},
		{"batches", (*checker).batches},
		{"contexts", (*checker).contexts},
		{"clock", (*checker).clock},
		{"exclusion", (*checker).exclusion},
		{"order", (*checker).order},
		{"crowd", (*checker).crowd},
		{"dead waiters", (*checker).deadWaiters},
		{"connection", (*checker).connection},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.run(t, func(t *testing.T) {
				c.check(&checker{t, h, h.open(t), h.open(t), "check-" + newOwner()})
			})
		})
	}
}

// checker is a check with two processes, which are to use only keys that begin with prefix.
type checker struct {
	*testing.T
	h      Harness
	p, q   process
	prefix string
}

func (c *checker) request(key string) backend.Request {
	return backend.Request{Key: key, Owner: newOwner(), TTL: time.Minute}
}

func (c *checker) acquire(p process, req backend.Request, m queue.Mode) queue.Answer {
	c.Helper()
	a, err := p.Acquire(c.Context(), queue.Attempt{Request: req, Mode: m})
	if err != nil {
		c.Fatalf("Acquire: %v", err)
	}
	return a
}

func (c *checker) end(p process, kind queue.Kind, req backend.Request) queue.Ended {
	c.Helper()
	e := p.End(c.Context(), []queue.End{{Request: req, Kind: kind}})
	if len(e) != 1 || e[0].Err != nil {
		c.Fatalf("End: %v", e)
	}
	return e[0]
}

// Different keys are different locks.
func (c *checker) keys() {
	var reqs []backend.Request
	for _, key := range []string{
		"", "a", "A", " a", "a ", "a:b", "a::b", "a/b", "a//b", "a.b", "{a}", "{a}b", "{}", "%61", "a%", "a_b", "*", "a\\b",
		"'a'", `"a"`, "a\x00", "\x00a", "a\n", "é", "e\u0301", "É", "ß", "ss", "\xff", "\xfe", "ÿ", "日本",
		strings.Repeat("k", 150), strings.Repeat("k", 151),
	} {
		reqs = append(reqs, c.request(c.prefix+key))
	}
	for _, req := range reqs {
		if a := c.acquire(c.p, req, queue.NoQueue); !a.Granted {
			c.Fatalf("key %q is another one that is held", req.Key)
		}
	}
	for _, req := range reqs {
		if a := c.acquire(c.q, c.request(req.Key), queue.NoQueue); a.Granted || a.Holder.Owner != req.Owner {
			c.Fatalf("key %q: got %+v, want that the attempt %s holds it", req.Key, a, req.Owner)
		}
		if e := c.end(c.p, queue.Release, req); !e.Held {
			c.Fatalf("Release of key %q: not held", req.Key)
		}
	}
}

// Metadata of any value come back as they are.
func (c *checker) metadata() {
	for i, m := range []string{
		"", " ", "host 1:2|3,4;5", `"'\%{}`, "日本 é e\u0301", strings.Repeat("m", backend.MaxMetadata),
	} {
		req := c.request(fmt.Sprint(c.prefix, i))
		req.Metadata = m
		c.acquire(c.p, req, queue.Join)
		if a := c.acquire(c.q, c.request(req.Key), queue.NoQueue); a.Holder.Metadata != m {
			c.Errorf("Acquire: the metadata of the holder are %q, want %q", a.Holder.Metadata, m)
		}
		if e := c.end(c.q, queue.Break, backend.Request{Key: req.Key}); e.Holder == nil || e.Holder.Metadata != m {
			c.Errorf("Break: the removed holder is %+v, want one with metadata %q", e.Holder, m)
		}
	}
}

// The greatest numbers are kept exactly.
func (c *checker) sizes() {
	req := c.request(c.prefix)
	req.TTL = 24 * time.Hour
	req.Share = backend.Share{Weight: backend.MaxPermits - 1, Capacity: backend.MaxPermits}
	a := c.acquire(c.p, req, queue.NoQueue)
	if want := req.Share.FreeSlots(nil); !slices.Equal(a.Slots, want) {
		c.Errorf("slots %v, want %v", a.Slots, want)
	}
	if d := req.TTL - a.Left; d.Abs() > c.h.Rounding {
		c.Errorf("%v left of a TTL of %v", a.Left, req.TTL)
	}
	one := c.request(c.prefix)
	one.Share = backend.Share{Weight: 1, Capacity: backend.MaxPermits}
	if a := c.acquire(c.q, one, queue.NoQueue); !slices.Equal(a.Slots, []int{backend.MaxPermits - 1}) {
		c.Errorf("slots %v, want the last", a.Slots)
	}
	one.Owner = newOwner()
	if a := c.acquire(c.q, one, queue.NoQueue); a.Granted {
		c.Errorf("more than %d permits were granted", backend.MaxPermits)
	}
}

// Results of a call with many grants are in its order, and one that fails does not concern the others.
func (c *checker) batches() {
	const n = 300
	var holds []queue.Hold
	var ends []queue.End
	if len(c.p.Renew(c.Context(), holds)) != 0 || len(c.p.End(c.Context(), ends)) != 0 {
		c.Error("a call without grants has results")
	}
	for i := range n {
		req := c.request(fmt.Sprint(c.prefix, i))
		if i%3 > 0 {
			c.acquire(c.p, req, queue.NoQueue)
		}
		holds = append(holds, queue.Hold{Key: req.Key, Owner: req.Owner, TTL: time.Duration(i+1) * time.Hour})
		kinds := []queue.Kind{queue.Release, queue.Abandon, queue.Break, queue.Downgrade}
		ends = append(ends, queue.End{Request: req, Kind: kinds[i%4]})
	}
	for i, r := range c.p.Renew(c.Context(), holds) {
		if held := i%3 > 0; held && r.Err != nil || !held && !errors.Is(r.Err, backend.ErrLost) {
			c.Fatalf("Renew at %d: %v; held: %v", i, r.Err, held)
		}
	}
	for i := 1; i < n; i += 3 {
		want := holds[i].TTL
		if a := c.acquire(c.q, c.request(holds[i].Key), queue.NoQueue); a.Left > want || a.Left < want-time.Minute {
			c.Fatalf("the grant at %d lasts for another %v, want %v", i, a.Left, want)
		}
	}
	for i, e := range c.p.End(c.Context(), ends) {
		if held := i%3 > 0; e.Err != nil || e.Held != held {
			c.Fatalf("End at %d: %+v; held: %v", i, e, held)
		}
	}
}

// A request whose context has ended returns, and its error says that.
func (c *checker) contexts() {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	req := c.request(c.prefix)
	_, acquireErr := c.p.Acquire(ctx, queue.Attempt{Request: req})
	_, passErr := c.p.Pass(ctx, req.Key, false)
	errs := []error{acquireErr, passErr}
	hold := queue.Hold{Key: req.Key, Owner: req.Owner, TTL: time.Minute}
	for _, r := range c.p.Renew(ctx, []queue.Hold{hold, hold}) {
		errs = append(errs, r.Err)
	}
	for _, e := range c.p.End(ctx, []queue.End{{Request: req}, {Request: c.request(c.prefix + "b")}}) {
		errs = append(errs, e.Err)
	}
	if len(errs) != 6 {
		c.Errorf("%d results, want 6", len(errs))
	}
	for i, err := range errs {
		if !errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrLost) {
			c.Errorf("request %d: got error %v, want that of its context", i, err)
		}
	}
}

// Sent is just before the request, and Now is the time of the service.
func (c *checker) clock() {
	req := c.request(c.prefix)
	before := time.Now()
	a := c.acquire(c.p, req, queue.NoQueue)
	between := time.Now()
	time.Sleep(50 * time.Millisecond)
	r := c.p.Renew(c.Context(), []queue.Hold{{Key: req.Key, Owner: req.Owner, TTL: time.Minute}})[0]
	after := time.Now()
	if a.Sent.Before(before) || a.Sent.After(between) {
		c.Errorf("Acquire was sent at %v, want %v to %v", a.Sent, before, between)
	}
	if r.Sent.Before(between.Add(50*time.Millisecond)) || r.Sent.After(after) {
		c.Errorf("Renew was sent at %v, want %v to %v", r.Sent, between, after)
	}
	passed, low, high := r.Now-a.Now, 45*time.Millisecond, after.Sub(before)+5*time.Millisecond // clocks are adjusted
	if a.Now <= 0 || passed < low || passed > high {
		c.Errorf("Now was %v, and %v later; want %v to %v later", a.Now, passed, low, high)
	}
}

// One attempt at a time holds a key that many acquire at once, and tokens rise.
func (c *checker) exclusion() {
	var tasks sync.WaitGroup
	var holding, grants atomic.Int32
	var last atomic.Uint64
	for i := range 8 {
		p := []process{c.p, c.q}[i%2]
		tasks.Go(func() {
			for range 40 {
				req := c.request(c.prefix)
				a, err := p.Acquire(c.Context(), queue.Attempt{Request: req})
				if err != nil {
					c.Errorf("Acquire: %v", err)
					return
				}
				if !a.Granted {
					continue
				}
				grants.Add(1)
				if n, before := holding.Add(1), last.Swap(a.Token); n > 1 || a.Token <= before {
					c.Errorf("%d hold the key, with token %d after %d", n, a.Token, before)
					return
				}
				time.Sleep(time.Millisecond)
				holding.Add(-1)
				if e := p.End(c.Context(), []queue.End{{Request: req}})[0]; e.Err != nil || !e.Held {
					c.Errorf("Release: %+v", e)
					return
				}
			}
		})
	}
	tasks.Wait()
	if grants.Load() == 0 {
		c.Error("no attempt was granted the key")
	}
}
