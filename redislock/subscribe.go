package redislock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// subscriptions are the channels on which scripts notify this process: one for the
// process or, in a cluster, one in the slot of each key that it waits for, because a
// script in a cluster sees only the subscribers of channels in the slot of its keys.
type subscriptions struct {
	b *service

	mu        sync.Mutex // guards the fields below, and those of the channels
	closed    bool
	channels  map[string]*channel
	listeners map[*redis.Client]*listener // by server of a cluster; otherwise under nil
	replaced  time.Time                   // when a server replied last that it cannot write, and its listener ended
}

// channel is subscribed while it is used.
type channel struct {
	s    *subscriptions
	name string

	users     int
	waiters   map[string]int // by key
	idle      *time.Timer
	on        *listener     // nil if no subscription was sent
	live      bool          // the server confirmed the subscription
	restoring bool          // a goroutine subscribes again
	wasLive   bool          // notifications may have been lost since
	changed   chan struct{} // closed when live or err changes
	err       error         // of the last failure
}

const (
	channelIdle           = 30 * time.Second // how long a cluster keeps the subscription of an unused channel
	minBackoff            = 20 * time.Millisecond
	maxBackoff            = time.Second
	minResubscribeBackoff = 10 * time.Millisecond

	confirmLimit    = server.ConfirmTimeout / 2 // after which a subscription that is not confirmed is repeated
	replaceInterval = time.Second               // between replacements of a listener on a server that cannot write
)

var (
	errUnconfirmed  = errors.New("redis: no reply to a subscription")
	errSlotMoved    = errors.New("redis: the slot moved")
	errNotDelivered = errors.New("redis: a grant was not delivered on the subscription")
	errNewMaster    = errors.New("redis: another server is master")
)

func newSubscriptions(b *service) *subscriptions {
	return &subscriptions{b: b, channels: map[string]*channel{}, listeners: map[*redis.Client]*listener{}}
}

// use returns the channel and keeps it until unuse, for a waiter of key if that is not "". It does
// not subscribe.
func (s *subscriptions) use(name, key string) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	if c == nil {
		c = &channel{s: s, name: name, changed: make(chan struct{}), waiters: map[string]int{}}
		s.channels[name] = c
	}
	c.users++
	if key != "" {
		c.waiters[key]++
	}
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	return c
}

func (c *channel) unuse(key string) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.waiters[key]--; c.waiters[key] <= 0 {
		delete(c.waiters, key)
	}
	if c.users--; c.users > 0 || s.closed {
		return
	}
	if c.on == nil {
		delete(s.channels, c.name)
		return
	}
	idle := channelIdle
	if s.b.quorum != nil {
		idle = 0 // a holder gives way to those that are subscribed
	}
	c.idle = time.AfterFunc(idle, c.expire)
}

// expire unsubscribes a channel that is not used. It closes a listener without channels.
func (c *channel) expire() {
	s := c.s
	if !s.b.srv.Enter() {
		return
	}
	defer s.b.srv.Leave()
	s.mu.Lock()
	l := c.on
	if c.users > 0 || s.channels[c.name] != c {
		s.mu.Unlock()
		return
	}
	delete(s.channels, c.name)
	last := true
	for _, o := range s.channels {
		last = last && o.on != l
	}
	if last && l != nil {
		delete(s.listeners, l.server)
	}
	s.mu.Unlock()
	switch {
	case l == nil:
	case last:
		_ = l.ps.Close()
	case s.b.srv.Cluster == nil:
		_ = l.ps.Unsubscribe(s.b.srv.Context(), c.name) // if it fails, the connection is broken
	default:
		_ = l.ps.SUnsubscribe(s.b.srv.Context(), c.name)
	}
}

// get returns a channel that is used.
func (s *subscriptions) get(name string) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[name]
}

// listenerOf returns the listener of a channel, nil if it is not subscribed.
func (s *subscriptions) listenerOf(name string) *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[name]; c != nil && c.live {
		return c.on
	}
	return nil
}

// pollNow lets the waiters of the channels ask at once.
func (s *subscriptions) pollNow(channels ...string) {
	if s.b.srv.Cluster == nil && len(channels) > 0 {
		s.b.events.Interrupted("") // there is one channel
		return
	}
	var keys []string
	s.mu.Lock()
	for _, name := range channels {
		if c := s.channels[name]; c != nil {
			keys = slices.AppendSeq(keys, maps.Keys(c.waiters))
		}
	}
	s.mu.Unlock()
	for _, key := range keys {
		s.b.events.Interrupted(key)
	}
}

// listening reports whether the channel is subscribed on the master of its slot.
func (c *channel) listening(ctx context.Context) bool {
	s := c.s
	s.mu.Lock()
	live, on := c.live, c.on
	s.mu.Unlock()
	if !live || s.b.srv.Cluster == nil {
		return live
	}
	// the slot may have moved, or its master may have failed over, without an error
	if master, err := s.b.srv.Cluster.MasterForKey(ctx, c.name); err == nil && master != on.server {
		s.lost(on, errSlotMoved)
		return false
	}
	return true
}

// wait returns when the channel is live. It returns the error of a subscription that
// the server refuses at once, other errors after ConfirmTimeout.
func (c *channel) wait(ctx context.Context) error {
	s := c.s
	timeout := time.NewTimer(server.ConfirmTimeout)
	defer timeout.Stop()
	var retry time.Time // when to subscribe again; each failure closes changed, also a failure here
	var failed error
	backoff := minBackoff
	for {
		s.mu.Lock()
		live, on, changed, err := c.live, c.on, c.changed, c.err
		s.mu.Unlock()
		if live {
			return nil
		}
		if refused(err) {
			return err
		}
		var again <-chan time.Time
		if on == nil {
			if now := time.Now(); !now.Before(retry) {
				retry, backoff = now.Add(backoff), min(2*backoff, maxBackoff)
				failed = s.subscribe(c)
				continue
			}
			again = time.After(time.Until(retry))
		}
		select {
		case <-changed:
		case <-again:
		case <-timeout.C:
			switch {
			case err != nil:
				return err
			case failed != nil:
				return failed
			}
			return errUnconfirmed
		case <-ctx.Done():
			return ctx.Err()
		case <-s.b.srv.Context().Done():
			return backend.ErrClosed
		}
	}
}

// refused reports whether err is an error of the server that will not go away soon.
func refused(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	_, moved := redis.IsMovedError(err)
	return !moved && !redis.IsLoadingError(err) && !redis.IsClusterDownError(err) && !redis.IsTryAgainError(err)
}

func (c *channel) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// restore subscribes the channels again until that succeeds.
func (s *subscriptions) restore(channels []*channel) {
	backoff := minResubscribeBackoff
	for s.b.srv.Context().Err() == nil {
		s.b.reload(s.b.srv.Context())
		for len(channels) > 0 {
			c := channels[0]
			s.mu.Lock()
			c.restoring = s.channels[c.name] == c && c.on == nil
			needed := c.restoring
			s.mu.Unlock()
			if !needed {
				channels = channels[1:]
			} else if s.subscribe(c) != nil {
				break
			}
		}
		if len(channels) == 0 {
			return
		}
		call.Sleep(s.b.srv.Context(), backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// followMasters moves the channels whose listener is not on the master of their slot.
func (s *subscriptions) followMasters() {
	s.mu.Lock()
	on := map[string]*listener{}
	for name, c := range s.channels {
		if c.on != nil {
			on[name] = c.on
		}
	}
	s.mu.Unlock()
	for name, l := range on {
		if master, err := s.b.srv.Cluster.MasterForKey(s.b.srv.Context(), name); err == nil && master != l.server {
			s.lost(l, errSlotMoved)
		}
	}
}

func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.listeners))
	for _, c := range s.channels {
		if c.idle != nil {
			c.idle.Stop()
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		_ = l.ps.Close()
	}
}
