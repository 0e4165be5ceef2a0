package queuetest

import (
	"fmt"
	"sync"
	"time"
)

// Server is a service in memory that keeps the rule: a [Reference] for each key, and its processes. Its clock is that
// of the program, which is virtual in a bubble of testing/synctest.
type Server struct {
	mu        sync.Mutex
	keys      map[string]*Reference
	processes map[string]*Service
}

// NewServer returns a Server without keys and processes.
func NewServer() *Server {
	return &Server{keys: map[string]*Reference{}, processes: map[string]*Service{}}
}

func (s *Server) now() time.Duration { return time.Duration(time.Now().UnixNano()) }

// Process returns the Service of a new process. If its Start is not called it gets no events: it polls, and counts as
// one that can be reached.
func (s *Server) Process() *Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &Service{server: s, name: fmt.Sprintf("p%d", len(s.processes)+1)}
	s.processes[p.name] = p
	return p
}

// key returns the state of a key. The mutex is locked.
func (s *Server) key(key string) *Reference {
	r := s.keys[key]
	if r == nil {
		r = &Reference{Reachable: func(process string) bool { return s.processes[process].disconnected == nil }}
		s.keys[key] = r
	}
	return r
}

// send gives events to their processes. The mutex is locked.
func (s *Server) send(key string, events []Event) {
	for _, e := range events {
		s.processes[e.Process].send(key, e)
	}
}
