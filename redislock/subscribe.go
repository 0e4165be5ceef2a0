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
)

// subscriptions are the channels on which this process is told things: one for
// the process or, in a cluster, one beside each key that it waits for, because a
// script in a cluster sees only the receivers of channels in its key's slot.
type subscriptions struct {
	b *Backend

	mu        sync.Mutex
	closed    bool
	channels  map[string]*channel
	listeners map[*redis.Client]*listener // one connection to each server of a cluster; else under nil
}

// channel is one of them, kept subscribed as long as it is used.
type channel struct {
	s    *subscriptions
	name string

	// under s.mu
	users   int
	waiters map[*attempt]struct{}
	idle    *time.Timer
	on      *listener     // nil while it is not placed
	live    bool          // the server confirmed
	again   bool          // a goroutine restores it
	before  bool          // it was live once: pushes may have been missed since
	changed chan struct{} // closed when live or err changes
	err     error         // of the last failure
}

// listener receives from one server, until its first error.
type listener struct {
	s      *subscriptions
	server *redis.Client // nil if there is no cluster
	ps     *redis.PubSub
}

const (
	channelIdle = 30 * time.Second // an unused channel in a cluster is kept that long
	confirmTime = 5 * time.Second  // a subscription that is not confirmed by then failed
	answerTime  = confirmTime / 2  // one that was sent and has no answer by then is made anew
)

func newSubscriptions(b *Backend) *subscriptions {
	return &subscriptions{b: b, channels: map[string]*channel{}, listeners: map[*redis.Client]*listener{}}
}

// use returns the channel and keeps it, for an attempt that waits if a is not nil.
// In a cluster it is not subscribed before the first wait.
func (s *subscriptions) use(name string, a *attempt) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	if c == nil {
		c = &channel{s: s, name: name, changed: make(chan struct{}), waiters: map[*attempt]struct{}{}}
		s.channels[name] = c
	}
	c.users++
	if a != nil {
		c.waiters[a] = struct{}{}
	}
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	return c
}

func (c *channel) unuse(a *attempt) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.waiters, a)
	if c.users--; c.users > 0 || s.closed {
		return
	}
	if c.on == nil {
		delete(s.channels, c.name)
		return
	}
	c.idle = time.AfterFunc(channelIdle, c.expire)
}

func (c *channel) expire() {
	s := c.s
	if !s.b.enter() {
		return
	}
	defer s.b.wg.Done()
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
	if l == nil {
		return
	}
	if last {
		_ = l.ps.Close() // ends the listener
	} else {
		_ = l.ps.SUnsubscribe(s.b.life, c.name) // else its next error ends it
	}
}

// waiters are the attempts that wait on the channels.
func (s *subscriptions) waiters(channels []string) (all []*attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range channels {
		if c := s.channels[name]; c != nil {
			all = slices.AppendSeq(all, maps.Keys(c.waiters))
		}
	}
	return all
}

// open returns by whom what is published now reaches this process; nil if it does
// not.
func (c *channel) open(ctx context.Context) *listener {
	s := c.s
	s.mu.Lock()
	live, on := c.live, c.on
	s.mu.Unlock()
	if !live {
		return nil
	}
	if s.b.cluster == nil {
		return on
	}
	// the slot may have moved, or its master failed over, without an error
	if server, err := s.b.cluster.MasterForKey(ctx, c.name); err == nil && server != on.server {
		s.lost(on, errMoved)
		return nil
	}
	return on
}

// wait returns when the channel is live, or with the error that keeps it from
// being so: at once if the server refuses, else after some time of trying.
func (c *channel) wait(ctx context.Context) error {
	s := c.s
	timeout := time.NewTimer(confirmTime)
	defer timeout.Stop()
	var retry time.Time // not placed again before: each failure, ours too, closes changed
	var failed error
	backoff := 20 * time.Millisecond
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
				retry, backoff = now.Add(backoff), min(2*backoff, time.Second)
				failed = s.place(c)
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
			return errSilent
		case <-ctx.Done():
			return ctx.Err()
		case <-s.b.life.Done():
			return backend.ErrClosed
		}
	}
}

var errSilent = errors.New("redis: no answer to a subscription")

// refused tells an answer of the server that will not change soon.
func refused(err error) bool {
	var server redis.Error
	if !errors.As(err, &server) {
		return false
	}
	_, moved := redis.IsMovedError(err)
	return !moved && !redis.IsLoadingError(err) && !redis.IsClusterDownError(err) && !redis.IsTryAgainError(err)
}

// place subscribes the channel at the server it belongs to.
func (s *subscriptions) place(c *channel) error {
	if !s.b.enter() {
		return backend.ErrClosed
	}
	defer s.b.wg.Done()
	ctx, cancel := context.WithTimeout(s.b.life, confirmTime)
	defer cancel()
	var server *redis.Client
	var err error
	subscribe := s.b.rdb.Subscribe
	if s.b.cluster != nil {
		if server, err = s.b.cluster.MasterForKey(ctx, c.name); err != nil {
			return failure(err)
		}
		subscribe = server.Subscribe
	}
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return backend.ErrClosed
	case c.on != nil || s.channels[c.name] != c:
		s.mu.Unlock()
		return nil // another did it
	}
	l, first := s.listeners[server], false
	if l == nil {
		// without a channel it does not connect yet
		l, first = &listener{s: s, server: server, ps: subscribe(s.b.life)}, true
		s.listeners[server] = l
	}
	c.on, c.err = l, nil
	s.mu.Unlock()

	if s.b.cluster != nil {
		// one command for each: together they would have to be of one slot
		err = l.ps.SSubscribe(ctx, c.name)
	} else {
		err = l.ps.Subscribe(ctx, c.name)
	}
	if err != nil {
		if server != nil && errors.Is(err, redis.ErrClosed) {
			err = errors.New("the server left the cluster") // and the client is not closed
		}
		s.lost(l, failure(err))
		return failure(err)
	}
	if first && s.b.enter() {
		go func() {
			defer s.b.wg.Done()
			l.run()
		}()
	}
	time.AfterFunc(answerTime, func() { s.unanswered(c, l) })
	return nil
}

// unanswered ends a listener that was not told of a channel in time: TCP alone would
// wait for much longer.
func (s *subscriptions) unanswered(c *channel, l *listener) {
	if !s.b.enter() {
		return
	}
	defer s.b.wg.Done()
	s.mu.Lock()
	silent := s.channels[c.name] == c && c.on == l && !c.live
	s.mu.Unlock()
	if silent {
		s.lost(l, errSilent)
	}
}

func (l *listener) run() {
	s := l.s
	for {
		// Receive and not Channel, which drops messages when it is full
		m, err := l.ps.Receive(s.b.life)
		if err != nil {
			s.lost(l, failure(err))
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
				if s.wanted(l, m.Channel) { // the slot moved away
					s.lost(l, errMoved)
					return
				}
			}
		}
	}
}

func (s *subscriptions) wanted(l *listener, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[name]
	return c != nil && c.on == l
}

func (s *subscriptions) confirmed(l *listener, name string) {
	s.mu.Lock()
	c := s.channels[name]
	if c == nil || c.on != l || c.live {
		s.mu.Unlock()
		return
	}
	again := c.before
	c.live, c.before = true, true
	c.signal()
	s.mu.Unlock()
	if again {
		s.b.pollNow(name)
	}
}

func (c *channel) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// lost ends a listener, and places its channels anew until that succeeds. Grants
// need nothing: their next renewal tells what a push would have told.
func (s *subscriptions) lost(l *listener, err error) {
	_ = l.ps.Close() // closed already, perhaps by us
	s.mu.Lock()
	if s.listeners[l.server] == l {
		delete(s.listeners, l.server)
	}
	var broken []string
	var again []*channel
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
		} else if c.before && !c.again { // else wait reports the error and its caller decides
			c.again = true
			again = append(again, c)
		}
	}
	closed := s.closed
	s.mu.Unlock()
	if s.b.cluster != nil && !closed {
		s.b.cluster.ReloadState(s.b.life)
	}
	if closed {
		return
	}
	s.b.pollNow(broken...) // who waits notices whether the server still answers
	if len(again) == 0 || !s.b.enter() {
		return
	}
	go func() {
		defer s.b.wg.Done()
		s.restore(again)
	}()
}

func (s *subscriptions) restore(channels []*channel) {
	backoff := 10 * time.Millisecond
	for s.b.life.Err() == nil {
		s.b.remap(s.b.life)
		for len(channels) > 0 {
			c := channels[0]
			s.mu.Lock()
			c.again = s.channels[c.name] == c && c.on == nil
			needed := c.again
			s.mu.Unlock()
			if !needed {
				channels = channels[1:]
			} else if s.place(c) != nil {
				break
			}
		}
		if len(channels) == 0 {
			return
		}
		sleep(s.b.life, backoff)
		backoff = min(2*backoff, time.Second)
	}
}

func (s *subscriptions) close() {
	s.mu.Lock()
	s.closed = true
	var all []*listener
	for _, l := range s.listeners {
		all = append(all, l)
	}
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
