package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// listener is a subscribed connection to one server, until its first error.
type listener struct {
	s      *subscriptions
	server *redis.Client // nil without a cluster
	ps     *redis.PubSub
}

// subscribe sends the subscription of the channel to the server of its slot. It does
// nothing if it was sent already.
func (s *subscriptions) subscribe(c *channel) error {
	srv := s.b.srv
	if !srv.Enter() {
		return backend.ErrClosed
	}
	defer srv.Done()
	ctx, cancel := context.WithTimeout(srv.Life, server.ConfirmTimeout)
	defer cancel()
	var master *redis.Client
	newPubSub := srv.Client.Subscribe
	if srv.Cluster != nil {
		var err error
		if master, err = srv.Cluster.MasterForKey(ctx, c.name); err != nil {
			return server.Failure(err)
		}
		newPubSub = master.Subscribe
	}
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return backend.ErrClosed
	case c.on != nil || s.channels[c.name] != c:
		s.mu.Unlock()
		return nil
	}
	l, found := s.listeners[master]
	if !found {
		l = &listener{s: s, server: master, ps: newPubSub(srv.Life)} // connects with its first channel
		s.listeners[master] = l
	}
	c.on, c.err = l, nil
	s.mu.Unlock()

	if err := l.send(ctx, c.name); err != nil {
		s.lost(l, err)
		return err
	}
	if !found {
		srv.Go(l.run)
	}
	time.AfterFunc(confirmLimit, func() { s.checkConfirmed(c, l) })
	return nil
}

// send sends one subscription: the channels of one command would have to be in one slot.
func (l *listener) send(ctx context.Context, channel string) error {
	if l.s.b.srv.Cluster == nil {
		if err := l.ps.Subscribe(ctx, channel); err != nil {
			return server.Failure(err)
		}
		return nil
	}
	err := l.ps.SSubscribe(ctx, channel)
	if errors.Is(err, redis.ErrClosed) {
		err = errors.New("the server left the cluster") // the cluster's client is not closed
	}
	if err != nil {
		return server.Failure(err)
	}
	return nil
}

// checkConfirmed ends a listener that did not confirm a channel in time: TCP alone would
// wait for much longer.
func (s *subscriptions) checkConfirmed(c *channel, l *listener) {
	if !s.b.srv.Enter() {
		return
	}
	defer s.b.srv.Done()
	s.mu.Lock()
	unconfirmed := s.channels[c.name] == c && c.on == l && !c.live
	s.mu.Unlock()
	if unconfirmed {
		s.lost(l, errUnconfirmed)
	}
}

// run handles the messages of the listener until its first error.
func (l *listener) run() {
	s := l.s
	for {
		// Receive and not Channel, which drops messages when its buffer is full
		m, err := l.ps.Receive(s.b.srv.Life)
		if err != nil {
			s.lost(l, server.Failure(err))
			return
		}
		switch m := m.(type) {
		case *redis.Message:
			s.b.receive(l, m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				s.confirmed(l, m.Channel)
			case "sunsubscribe":
				if s.uses(l, m.Channel) { // the server unsubscribed it
					s.lost(l, errSlotMoved)
					return
				}
			}
		}
	}
}

func (s *subscriptions) uses(l *listener, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	return c != nil && c.on == l
}

// confirmed handles the confirmation of a subscription.
func (s *subscriptions) confirmed(l *listener, name string) {
	s.mu.Lock()
	c := s.channels[name]
	if c == nil || c.on != l || c.live {
		s.mu.Unlock()
		return
	}
	again := c.wasLive
	c.live, c.wasLive = true, true
	c.signal()
	s.mu.Unlock()
	if again {
		s.pollNow(name)
	}
}

// lost ends a listener and subscribes its channels again. Holders need no notification:
// their next renewal reports a loss.
func (s *subscriptions) lost(l *listener, err error) {
	_ = l.ps.Close() // it may be closed already
	s.mu.Lock()
	if s.listeners[l.server] == l {
		delete(s.listeners, l.server)
	}
	var broken []string
	var restore []*channel
	for name, c := range s.channels {
		if c.on != l {
			continue
		}
		if c.live {
			broken = append(broken, name)
		}
		c.on, c.live, c.err = nil, false, err
		c.signal()
		if c.users == 0 {
			delete(s.channels, name)
		} else if c.wasLive && !c.restoring { // otherwise channel.wait returns the error
			c.restoring = true
			restore = append(restore, c)
		}
	}
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return
	}
	if s.b.srv.Cluster != nil {
		s.b.srv.Cluster.ReloadState(s.b.srv.Life)
	}
	s.pollNow(broken...) // the polls show whether the server still answers
	if len(restore) > 0 {
		s.b.srv.Go(func() { s.restore(restore) })
	}
}
