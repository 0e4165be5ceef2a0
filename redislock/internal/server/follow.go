package server

import (
	"context"
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Follow sends script, which grants a free key to its next waiter, when a provisional grant ends
// that a request of this process made: the waiters that the server notified may all be dead. It
// repeats that while the last provisional grant is not claimed. left is the length of the
// provisional grant, in ms; Follow does nothing if it is 0, and sends script at once if it is negative. A later call for the same key delays
// the script, so that a busy key costs nothing.
func (s *Server) Follow(keys protocol.Keys, left int64, script *protocol.Script, names []string, args func() []any) {
	if left < 0 {
		s.Go(func() { s.lookAgain(keys, script, names, args) })
	}
	if left <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := time.Now().Add(protocol.OfMillis(left) + protocol.PollSlack())
	_, pending := s.followed[keys.Lock]
	s.followed[keys.Lock] = end
	if pending {
		return
	}
	var look func()
	look = func() {
		s.mu.Lock()
		end := s.followed[keys.Lock]
		if s.closed {
			s.mu.Unlock()
			return
		}
		if d := time.Until(end); d > 0 {
			s.mu.Unlock()
			time.AfterFunc(d, look)
			return
		}
		delete(s.followed, keys.Lock)
		s.mu.Unlock()
		s.Go(func() { s.lookAgain(keys, script, names, args) })
	}
	time.AfterFunc(time.Until(end), look)
}

func (s *Server) lookAgain(keys protocol.Keys, script *protocol.Script, names []string, args func() []any) {
	ctx, cancel := context.WithTimeout(s.Life, protocol.ProvisionalTTL)
	defer cancel()
	if r, err := s.Eval(ctx, script, names, args()...); err == nil {
		s.Follow(keys, r.Num(0), script, names, args)
	}
}
