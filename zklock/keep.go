package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// confirm returns when a request that changes nothing, but that a majority must
// agree to, was sent after the call and answered. It moves the session's clock,
// and every watch event of what happened before it has arrived when it returns.
// Those who ask at the same time share one.
func (s *session) confirm(ctx context.Context) error {
	return s.confirms.join(ctx)
}

func (s *session) confirmOnce(ctx context.Context) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	path := s.b.base
	_, _, err := call(ctx, s, true, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
	})
	return explain(err, path)
}

// batch lets those who ask while a request is under way share the next.
type batch struct {
	s    *session
	mu   sync.Mutex
	busy bool
	next *flight
	last time.Time
}

type flight struct {
	done chan struct{}
	err  error
}

func (b *batch) join(ctx context.Context) error {
	b.mu.Lock()
	if b.next == nil {
		b.next = &flight{done: make(chan struct{})}
	}
	f := b.next
	if !b.busy {
		if err := b.s.begin(); err != nil {
			b.next = nil
			b.mu.Unlock()
			return err
		}
		b.busy = true
		go b.run()
	}
	b.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	case <-b.s.over:
		return b.s.ended()
	}
}

// run makes the requests that are asked for, one at a time and with a pause
// between them: leases by the hundred, each renewed at a time of its own, cost no
// more than that.
func (b *batch) run() {
	defer b.s.calls.Done()
	s := b.s
	timeout := s.clock.period()
	for {
		b.mu.Lock()
		pause := time.Until(b.last.Add(min(timeout/50, 50*time.Millisecond)))
		b.mu.Unlock()
		if pause > 0 {
			sleep(s.ending, pause)
		}
		b.mu.Lock()
		f := b.next
		b.next = nil
		if f == nil {
			b.busy = false
			b.mu.Unlock()
			return
		}
		b.last = time.Now()
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ending, timeout/3)
		f.err = s.confirmOnce(ctx)
		cancel()
		close(f.done)
	}
}

// keepEvery is how often the session's clock is moved while somebody holds or
// waits, unless that happens anyway: a waiter that is told of its turn must know
// at once how long it lasts.
func (s *session) keepEvery() time.Duration { return s.clock.period() * 3 / 10 }

func (s *session) keepInLocked(d time.Duration) {
	if s.keeping == nil {
		s.keeping = time.AfterFunc(d, s.keep)
	} else {
		s.keeping.Reset(d)
	}
}

// keep is called by the timer.
func (s *session) keep() {
	every := s.keepEvery()
	next := time.Until(s.clock.lastChange().Add(every))
	if next <= 0 {
		ctx, cancel := context.WithTimeout(s.ending, every)
		err := s.confirm(ctx)
		cancel()
		next = every
		if err != nil {
			next = every / 4
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && (s.users > 0 || !s.b.own) {
		s.keepInLocked(max(next, 5*time.Millisecond))
	}
}

// settle returns when it is known how long the session lasts. That is at once for
// a session of our own, and takes more than half a tick on a caller's connection
// that was not used before.
func (s *session) settle(ctx context.Context) error {
	for s.clock.until().IsZero() {
		if err := s.confirm(ctx); err != nil {
			return err
		}
		if s.clock.until().IsZero() {
			sleep(ctx, s.clock.relay)
		}
	}
	return nil
}
