package measure_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// service is a lock whose operations take fixed times, for synctest bubbles. Its queue
// is first in, first out.
type service struct {
	ping, lock, unlock, handOff time.Duration

	twoAtOnce     bool          // grants each request
	sameToken     bool          // all grants have the same token
	refuses       bool          // fails each second Lock
	forgets       bool          // wakes no waiter after the tenth Lock
	uncancellable bool          // a wait ends when the client is closed, not with its context
	cold          time.Duration // additional time of each of the first 64 hand-offs

	closed  chan struct{}
	closing sync.Once
	mu      sync.Mutex
	held    map[string]bool
	waiting map[string][]chan struct{}
	token   uint64
	calls   int64
}

var errRefused = errors.New("refused by the test")

func (s *service) target(name string) measure.Target {
	return measure.Target{
		Name: name, Version: "1",
		Open: func(context.Context) (measure.Client, error) { return fakeClient{s}, nil },
		Operations: func(context.Context) (int64, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.calls, nil
		},
	}
}

type fakeClient struct{ s *service }

func (c fakeClient) Ping(context.Context) error {
	time.Sleep(c.s.ping)
	return nil
}

func (c fakeClient) Close(context.Context) error {
	if c.s.uncancellable {
		c.s.closing.Do(func() { close(c.s.closed) })
	}
	return nil
}

func (c fakeClient) Lock(ctx context.Context, name string) (measure.Lease, error) {
	s := c.s
	time.Sleep(s.lock)
	s.mu.Lock()
	s.calls++
	if s.refuses && s.calls%2 == 0 {
		s.mu.Unlock()
		return nil, errRefused
	}
	if s.held == nil {
		s.held, s.waiting = map[string]bool{}, map[string][]chan struct{}{}
	}
	if s.held[name] && !s.twoAtOnce {
		turn := make(chan struct{})
		s.waiting[name] = append(s.waiting[name], turn)
		s.mu.Unlock()
		end := ctx.Done()
		if s.uncancellable {
			end = s.closed
		}
		select {
		case <-turn:
		case <-end:
			return nil, context.Canceled
		}
		time.Sleep(s.handOff)
		s.mu.Lock()
		if s.token < 64 && s.cold > 0 {
			s.mu.Unlock()
			time.Sleep(s.cold)
			s.mu.Lock()
		}
	}
	defer s.mu.Unlock()
	s.held[name] = true
	if !s.sameToken || s.token == 0 {
		s.token++
	}
	return fakeLease{s, name, s.token}, nil
}

type fakeLease struct {
	s     *service
	name  string
	token uint64
}

func (l fakeLease) Token() (uint64, bool) { return l.token, true }

func (l fakeLease) Unlock(context.Context) error {
	s := l.s
	s.mu.Lock()
	s.calls++
	if w := s.waiting[l.name]; len(w) > 0 && (!s.forgets || s.token < 10) {
		close(w[0])
		s.waiting[l.name] = w[1:]
	} else {
		s.held[l.name] = false
	}
	s.mu.Unlock()
	time.Sleep(s.unlock)
	return nil
}
