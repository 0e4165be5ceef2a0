package placestest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Session is a session of a [Server]. A client renews it every eighth of its TTL.
type Session struct {
	client *Client
	name   string
	ttl    time.Duration

	// guarded by Server.mu
	epoch   int // requests of an earlier one are refused
	over    bool
	expires *time.Timer

	renewing chan struct{} // capacity 1
	ticking  chan struct{} // capacity 1; Close waits for it

	mu    sync.Mutex // guards the fields below
	sent  time.Time
	ended bool
	done  chan struct{}
	clock *time.Timer
	next  *time.Timer
}

var _ places.Session = (*Session)(nil)

// serve begins or extends the session at the server. Server.mu is held.
func (s *Session) serve() {
	switch {
	case s.over:
	case s.expires == nil:
		s.expires = time.AfterFunc(s.ttl, func() {
			s.client.server.mu.Lock()
			defer s.client.server.mu.Unlock()
			s.expire()
		})
	default:
		s.expires.Reset(s.ttl)
	}
}

// expire ends the session at the server. Server.mu is held.
func (s *Session) expire() {
	s.over = true
	s.expires.Stop()
	s.client.server.remove(func(p *place) bool { return p.session == s })
}

// Expire ends the sessions of a client at the server.
func (c *Client) Expire() {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	for _, s := range open {
		s.expire()
	}
}

// EndSessions ends the sessions of a client as its clock does.
func (c *Client) EndSessions() {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	for _, s := range open {
		s.end()
	}
}

// start begins the clock of the client.
func (s *Session) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = time.AfterFunc(time.Until(s.sent.Add(s.ttl*9/10)), s.end)
	s.next = time.AfterFunc(s.ttl/8, s.tick)
}

func (s *Session) tick() {
	select {
	case s.ticking <- struct{}{}:
		defer func() { <-s.ticking }()
	case <-s.done:
	}
	select {
	case <-s.done:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.ttl/8)
	defer cancel()
	_ = s.Renew(ctx, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.next.Reset(s.ttl / 8)
	}
}

// end ends the session at the client.
func (s *Session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.clock.Stop()
	s.next.Stop()
	close(s.done)
}

// now returns the epoch of the session.
func (s *Session) now() (epoch int, ended bool) {
	s.client.server.mu.Lock()
	defer s.client.server.mu.Unlock()
	return s.epoch, s.over
}

// Trust implements places.Session.
func (s *Session) Trust() (time.Time, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent, s.ttl
}

// Renew implements places.Session.
func (s *Session) Renew(ctx context.Context, age time.Duration) error {
	select {
	case s.renewing <- struct{}{}:
		defer func() { <-s.renewing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	sent := time.Now()
	if at, _ := s.Trust(); sent.Sub(at) < age {
		return nil
	}
	over := false
	if err := s.client.call(ctx, "Renew", func() { s.serve(); over = s.over }); err != nil {
		return err
	}
	if over {
		s.end()
		return s.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.sent) && !s.ended {
		s.sent = sent
		s.clock.Reset(time.Until(sent.Add(s.ttl * 9 / 10)))
	}
	return nil
}

// Done implements places.Session.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err implements places.Session.
func (s *Session) Err() error { return fmt.Errorf("%w: the session has ended", backend.ErrLost) }

// Close implements places.Session.
func (s *Session) Close(ctx context.Context) error {
	s.end()
	select {
	case s.ticking <- struct{}{}: // no goroutine is left
		defer func() { <-s.ticking }()
	case <-ctx.Done():
	}
	return s.client.call(ctx, "Close", s.expire)
}
