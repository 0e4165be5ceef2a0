package placestest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// delay is that of the network, each way.
const delay = time.Millisecond

// Fault is what becomes of a request.
type Fault int

// The faults.
const (
	None      Fault = iota
	Refused         // the server does not execute it, and says so
	Lost            // it does not arrive
	ReplyLost       // the reply does not arrive
	Late            // it arrives when [Client.Deliver] is called; there is no reply
)

// Client is the Service of a process.
type Client struct {
	server *Server
	events places.Events

	mu    sync.Mutex // guards the fields below
	fault func(method string) Fault
	late  []func()
	cut   bool
	made  int // requests
	open  []*Session
}

var _ places.Service = (*Client)(nil)

// Client returns the Service of a new process. Set its Events before a grant may be broken.
func (s *Server) Client() *Client { return &Client{server: s} }

// Service returns the Service to use: the Client, or a places.Viewer.
func (c *Client) Service() places.Service {
	if c.server.Views {
		return viewer{c}
	}
	return c
}

// Use sets where breaks are reported.
func (c *Client) Use(events places.Events) { c.events = events }

// Inject makes faults: f is called for each request with the name of its method, one at a time.
func (c *Client) Inject(f func(method string) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// Cut cuts or restores the network of the process.
func (c *Client) Cut(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// Requests returns how many requests were made.
func (c *Client) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// Deliver executes the requests that are late.
func (c *Client) Deliver() {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	for _, f := range late {
		f()
	}
}

var errNoReply = errors.New("no reply")

// call makes a request, which f executes at the server.
func (c *Client) call(ctx context.Context, method string, f func()) error {
	execute := func() {
		c.server.mu.Lock()
		defer c.server.mu.Unlock()
		f()
	}
	c.mu.Lock()
	c.made++
	fault := None
	if c.fault != nil {
		fault = c.fault(method)
	}
	if fault == Late {
		c.late = append(c.late, execute)
	}
	if c.cut {
		fault = Lost
	}
	c.mu.Unlock()
	if err := pause(ctx, delay); err != nil {
		return backend.Uncertain(err)
	}
	switch fault {
	case Refused:
		return backend.NotExecuted(errors.New("refused"))
	case Lost, Late:
		if err := pause(ctx, time.Second); err != nil {
			return backend.Uncertain(err)
		}
		return backend.Uncertain(errNoReply)
	}
	execute()
	if err := pause(ctx, delay+rand.N(c.server.Jitter+1)); err != nil {
		return backend.Uncertain(err)
	}
	if fault == ReplyLost {
		return backend.Uncertain(errNoReply)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Open implements places.Service.
func (c *Client) Open(ctx context.Context, ttl time.Duration) (places.Session, error) {
	s := &Session{client: c, ttl: ttl, sent: time.Now(), done: make(chan struct{}), renewing: make(chan struct{}, 1)}
	s.ticking = make(chan struct{}, 1)
	s.name = fmt.Sprintf("%p", s)
	if err := c.call(ctx, "Open", func() { s.serve() }); err != nil {
		return nil, err
	}
	s.start()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, s)
	return s, nil
}

// Put implements places.Service.
func (c *Client) Put(ctx context.Context, p places.Put) (places.Answer, error) {
	var a places.Answer
	session := p.Session.(*Session)
	epoch, ended := session.now()
	refused := false
	if err := c.call(ctx, "Put", func() {
		a, ended, refused = places.Answer{}, session.over, epoch != session.epoch
		if ended || refused {
			return
		}
		q := c.server.read(p.Key, places.All, 0)
		if p.Mode == places.Try && !q.Fits(p.Share) && q.Index(session.id(p.Key, p.Number)) < 0 {
			a.Queue = q
			return
		}
		own := c.server.put(session, &p).Place
		a.Place = &own
		if p.Mode == places.Follow {
			return
		}
		a.Queue = c.server.read(p.Key, own.Order, 0)
		a.Holds = a.Queue.Holders() == len(a.Queue.Places) && len(own.Slots) == p.Share.Weight
		if unrecorded := a.Queue.Unrecorded(math.MaxInt); p.Mode == places.Try && p.Share.Capacity > 0 {
			c.server.record(unrecorded)
			own = c.server.put(session, &p).Place
			a.Holds = len(own.Slots) > 0
		}
		a.Holds = a.Holds || p.Share.Capacity == 0 && a.Queue.Holders() == len(a.Queue.Places)
		if p.Share.Exclusive() && len(a.Queue.Places) > 3 {
			a.Queue = c.server.read(p.Key, own.Order, 3)
		}
	}); err != nil {
		return places.Answer{}, err
	}
	switch {
	case ended:
		session.end()
		return a, places.ErrEnded
	case refused: // a request of this session was given up meanwhile
		return c.Put(ctx, p)
	}
	return a, nil
}

// record writes the slots of places. s.mu is held.
func (s *Server) record(all []places.Place) {
	for i, u := range all {
		p, key := s.find(u.ID)
		s.revision++
		p.Share, p.Slots, p.Version = u.Share, u.Slots, s.revision
		all[i].Version = s.revision
		s.notify(key, p.Place, places.Updated)
	}
}

// Read implements places.Service.
func (c *Client) Read(ctx context.Context, key string, upTo uint64, last int) (places.Queue, error) {
	var q places.Queue // a late request writes it when it is not read any more
	if err := c.call(ctx, "Read", func() { q = c.server.read(key, upTo, last) }); err != nil {
		return places.Queue{}, err
	}
	return q, nil
}

// Watch implements places.Service.
func (c *Client) Watch(
	ctx context.Context, key string, p places.Place, changed func(places.Place, places.Change),
) (stop func(), checked bool, err error) {
	w := &watch{key: key, id: p.ID, changed: changed}
	change := places.Unchanged
	if err := c.call(ctx, "Watch", func() {
		c.server.watches[w] = struct{}{}
		if c.server.WatchChecks && p.ID != "" {
			change = c.server.compare(&p)
		}
	}); err != nil {
		return nil, false, err
	}
	if change != places.Unchanged {
		changed(places.Place{ID: p.ID, Version: p.Order + 1}, change)
	}
	return func() { go c.server.unwatch(w) }, c.server.WatchChecks, nil // the caller may have a lock
}

func (s *Server) unwatch(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// viewer is a Client that reports all changes of a queue.
type viewer struct{ *Client }

// View implements places.Viewer.
func (c viewer) View(
	ctx context.Context, key string, changed func(places.Place, places.Change),
) (since uint64, stop func(), err error) {
	w := &watch{key: key, changed: changed, puts: true}
	if err := c.call(ctx, "View", func() {
		c.server.watches[w] = struct{}{}
		since = c.server.revision
	}); err != nil {
		return 0, nil, err
	}
	return since, func() { go c.server.unwatch(w) }, nil
}

// Check implements places.Service.
func (c *Client) Check(ctx context.Context, all []places.Place) ([]places.Change, error) {
	changes := make([]places.Change, len(all))
	if err := c.call(ctx, "Check", func() {
		for i, one := range all {
			changes[i] = c.server.compare(&one)
		}
	}); err != nil {
		return nil, err
	}
	return changes, nil
}

// compare returns how a place is. s.mu is held.
func (s *Server) compare(one *places.Place) places.Change {
	switch p, _ := s.find(one.ID); {
	case p == nil || p.Order != one.Order:
		return places.Ended
	case p.Version != one.Version:
		return places.Updated
	}
	return places.Unchanged
}

// Update implements places.Service.
func (c *Client) Update(ctx context.Context, all []places.Place) (bool, error) {
	done := false
	if err := c.call(ctx, "Update", func() {
		done = true
		for _, one := range all {
			done = done && c.server.compare(&one) == places.Unchanged
		}
		if done {
			c.server.record(all)
		}
	}); err != nil {
		return false, err
	}
	return done, nil
}

// Remove implements places.Service.
func (c *Client) Remove(ctx context.Context, all []places.Removal) []places.Removed {
	results := make([]places.Removed, len(all))
	err := c.call(ctx, "Remove", func() {
		for i, r := range all {
			session, known := r.Session.(*Session)
			if known && r.Late {
				session.epoch++
			}
			if known && r.ID == "" {
				r.ID = session.id(r.Key, r.Number)
			}
			var broken []*place
			results[i].Existed = c.server.remove(func(p *place) bool {
				gone := p.Owner == r.Asked.Owner
				if r.ID != "" {
					gone = p.ID == r.ID && (!r.Break || p.Order == r.Order)
				}
				if gone && r.Break {
					broken = append(broken, p)
				}
				return gone
			}) > 0
			for _, p := range broken {
				if e := p.session.client.events; e != nil {
					time.AfterFunc(delay, func() { e.Broken(p.Owner) })
				}
			}
		}
	})
	if err != nil {
		return slices.Repeat([]places.Removed{{Err: err}}, len(all))
	}
	return results
}

// Close implements places.Service.
func (c *Client) Close(context.Context) error { return nil }
