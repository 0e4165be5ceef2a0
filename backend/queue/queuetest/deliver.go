package queuetest

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

// delivery is a report that is on its way to a process.
type delivery struct {
	due    time.Time
	report func(queue.Events)
}

// report calls the method of to for an event of key.
func (e Event) report(key string, to queue.Events) {
	switch e.Kind {
	case Granted:
		e.Grant.Received = time.Now()
		to.Granted(e.Grant)
	case LeaseEnds:
		to.LeaseEnds(e.Owner, e.Left)
	case Asked:
		to.Asked(key, e.Owner)
	case Removed:
		to.Removed(key, e.Owner)
	case Lost:
		to.Lost(e.Owner)
	}
}

// send sends an event of key to s. The mutex of the server is locked.
func (s *Service) send(key string, e Event) {
	if s.events != nil && s.disconnected == nil && !s.faults.LoseEvents {
		s.deliver(s.faults.Delay, func(to queue.Events) { e.report(key, to) })
	}
}

// deliver lets a goroutine make a report after the delay, and after the reports before. The mutex of the server is
// locked.
func (s *Service) deliver(delay time.Duration, report func(queue.Events)) {
	s.deliveries = append(s.deliveries, delivery{time.Now().Add(delay), report})
	if !s.delivering {
		s.delivering = true
		go s.deliverAll()
	}
}

func (s *Service) deliverAll() {
	mu := &s.server.mu
	mu.Lock()
	defer mu.Unlock()
	for len(s.deliveries) > 0 {
		next := s.deliveries[0]
		if wait := time.Until(next.due); wait > 0 {
			mu.Unlock()
			time.Sleep(wait)
			mu.Lock()
			continue // Disconnect may have dropped it
		}
		s.deliveries = s.deliveries[1:]
		to := s.events
		mu.Unlock()
		next.report(to)
		mu.Lock()
	}
	s.delivering = false
}

// Use implements queue.Pusher. The events of all keys come over one connection.
func (s *Service) Use(string) (stop func()) { return func() {} }

// Listening implements queue.Pusher.
func (s *Service) Listening(string) bool {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return s.events != nil && s.disconnected == nil
}

// Listen implements queue.Pusher.
func (s *Service) Listen(ctx context.Context, _ string) error {
	s.server.mu.Lock()
	started, disconnected := s.events != nil, s.disconnected
	s.server.mu.Unlock()
	switch {
	case !started:
		return queue.ErrPoll
	case disconnected == nil:
		return nil
	}
	select {
	case <-disconnected:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Doubt implements queue.Pusher. Events are lost only if a test wants it.
func (s *Service) Doubt(string) {}
