package queuetest

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// Service is a process at a [Server]: a queue.Service and a queue.Pusher, whose faults a test can choose.
type Service struct {
	server *Server
	name   string

	// The mutex of the server guards these.
	events       queue.Events  // nil if it was not started
	disconnected chan struct{} // closed by Connect; nil if it is connected
	faults       Faults
	deliveries   []delivery
	delivering   bool
}

// Faults are what goes wrong between a process and its Server. The zero Faults are none.
//
// To stop a process (SIGSTOP), set LoseRequests and LoseEvents: the server can still reach it.
type Faults struct {
	// Delay is how long a request takes until it is executed, and an event until it arrives. A request is executed also
	// if its context has ended before that.
	Delay time.Duration
	// LoseRequests: requests are not executed, and fail with ErrUncertain.
	LoseRequests bool
	// LoseReplies: requests are executed, and fail with ErrUncertain.
	LoseReplies bool
	// LoseEvents: events do not arrive. The server does not notice it.
	LoseEvents bool
}

var errLost = errors.New("the connection was lost")

// Start makes s report its events to e. Call it before other methods.
func (s *Service) Start(e queue.Events) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.events = e
}

// SetFaults sets the faults of the requests that are sent and the events that occur from now on.
func (s *Service) SetFaults(f Faults) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.faults = f
}

// Disconnect ends the connection over which s gets events, until Connect is called. The server notices it, and so does
// the process, by Interrupted. Events that have not arrived are lost.
func (s *Service) Disconnect() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.disconnected != nil || s.events == nil {
		return
	}
	s.disconnected, s.deliveries = make(chan struct{}), nil
	s.deliver(0, func(to queue.Events) { to.Interrupted("") })
}

// Connect restores the connection over which s gets events.
func (s *Service) Connect() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.disconnected != nil {
		close(s.disconnected)
		s.disconnected = nil
	}
}

// Acquire implements queue.Service.
func (s *Service) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	sent := time.Now()
	answer, err := exchange(ctx, s, func(now time.Duration) queue.Answer {
		answer, events := s.server.key(a.Key).Acquire(now, s.name, a)
		s.server.send(a.Key, events)
		return answer
	})
	answer.Sent = sent
	return answer, err
}

// Renew implements queue.Service.
func (s *Service) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	sent := time.Now()
	all, err := exchange(ctx, s, func(now time.Duration) []queue.Renewed {
		all := make([]queue.Renewed, len(holds))
		for i, h := range holds {
			renewed, events := s.server.key(h.Key).Renew(now, s.name, h)
			s.server.send(h.Key, events)
			all[i] = renewed
		}
		return all
	})
	if err != nil {
		all = make([]queue.Renewed, len(holds))
	}
	for i := range all {
		all[i].Sent = sent
		if err != nil {
			all[i].Err = err
		}
	}
	return all
}

// End implements queue.Service.
func (s *Service) End(ctx context.Context, ends []queue.End) []queue.Ended {
	all, err := exchange(ctx, s, func(now time.Duration) []queue.Ended {
		all := make([]queue.Ended, len(ends))
		for i, e := range ends {
			ended, events := s.server.key(e.Key).End(now, s.name, e)
			s.server.send(e.Key, events)
			all[i] = ended
		}
		return all
	})
	if err != nil {
		all = make([]queue.Ended, len(ends))
		for i := range all {
			all[i].Err = err
		}
	}
	return all
}

// Pass implements queue.Service.
func (s *Service) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	return exchange(ctx, s, func(now time.Duration) queue.Passed {
		passed, events := s.server.key(key).Pass(now, key, leaves)
		s.server.send(key, events)
		return passed
	})
}

// Close implements queue.Service. What the process holds stays.
func (s *Service) Close(context.Context) error {
	s.Disconnect()
	return nil
}

// exchange executes a request at the server, subject to the faults.
func exchange[T any](ctx context.Context, s *Service, execute func(now time.Duration) T) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, backend.NotExecuted(err)
	}
	s.server.mu.Lock()
	f := s.faults
	s.server.mu.Unlock()
	replies := make(chan T, 1)
	arrive := func() {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		if f.LoseRequests {
			replies <- none
			return
		}
		replies <- execute(s.server.now())
	}
	if f.Delay > 0 {
		time.AfterFunc(f.Delay, arrive)
	} else {
		arrive()
	}
	select {
	case reply := <-replies:
		if f.LoseRequests || f.LoseReplies {
			return none, backend.Uncertain(errLost)
		}
		return reply, nil
	case <-ctx.Done():
		return none, backend.Uncertain(ctx.Err())
	}
}
