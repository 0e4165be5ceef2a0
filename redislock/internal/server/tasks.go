package server

import "time"

// idleWorker is how long a goroutine waits for its next request.
const idleWorker = time.Second

// Enter registers a task that Close waits for. The task calls Done at its end. Enter
// returns false after Stop.
func (s *Server) Enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Add(1)
	return true
}

// Done ends a task.
func (s *Server) Done() { s.tasks.Done() }

// Go runs f as a task in a new goroutine. It returns false after Stop.
func (s *Server) Go(f func()) bool {
	if !s.Enter() {
		return false
	}
	go func() {
		defer s.Done()
		f()
	}()
	return true
}

// Send runs f as a task on a worker. It returns false after Stop.
func (s *Server) Send(f func()) bool {
	if !s.Enter() {
		return false
	}
	s.dispatch(f)
	return true
}

// dispatch runs the task f on a worker: an idle one, whose stack has grown already, or a
// new one. With a new goroutine for each task, Lock and Unlock of a free lock take 24 % more
// processor time of the client (338 instead of 272 µs together, server on the same machine).
func (s *Server) dispatch(f func()) {
	select {
	case s.jobs <- f:
	default:
		go s.work(f)
	}
}

func (s *Server) work(f func()) {
	idle := time.NewTimer(idleWorker)
	defer idle.Stop()
	for {
		f()
		s.Done()
		idle.Reset(idleWorker)
		select {
		case f = <-s.jobs:
		case <-idle.C:
			return
		case <-s.Life.Done():
			return
		}
	}
}
