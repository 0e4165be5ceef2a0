package queued

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

const (
	lateness  = 5 * time.Minute // for how long a request may be on its way
	maxEvents = 4096            // that a process has not read
	writeTime = 5 * time.Second // of one event
)

// Server is the service: locks in memory, with a queue for each key. See request and event for its protocol.
type Server struct {
	start time.Time

	mu      sync.Mutex
	keys    map[string]*key
	streams map[string]*stream // by process, of those that can be reached
	ended   map[late]time.Duration
}

// late is an attempt of which requests are refused.
type late struct{ key, owner string }

type stream struct {
	events chan event
	end    context.CancelFunc
}

// NewServer returns a service without locked keys.
func NewServer() *Server {
	return &Server{
		start: time.Now(), keys: map[string]*key{}, streams: map[string]*stream{}, ended: map[late]time.Duration{},
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/events" {
		s.push(w, r)
		return
	}
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Process == "" {
		http.Error(w, "want a process and its operations", http.StatusBadRequest)
		return
	}
	results := make([]result, len(req.Operations))
	for i, op := range req.Operations {
		results[i] = s.do(req.Process, op)
	}
	_ = json.NewEncoder(w).Encode(results)
}

// do executes an operation atomically. Only the server's clock counts: the time since 1970, which is never set back, so
// that a key without holders and waiters can be forgotten with its last token.
func (s *Server) do(process string, op operation) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Duration(s.start.UnixNano()) + time.Since(s.start)
	attempt := late{string(op.Key), op.Owner}
	switch _, refused := s.ended[attempt]; {
	case refused && op.Kind == acquire:
		return result{Answer: queue.Answer{Refused: true}}
	case op.Kind == downgrade && op.Share.Capacity > 0:
		return result{Invalid: "permits cannot be downgraded"}
	}
	k := s.keys[attempt.key]
	if k == nil {
		k = &key{send: s.send, reachable: func(process string) bool { return s.streams[process] != nil }}
		s.keys[attempt.key] = k
	}
	r := k.do(now, process, op)
	if op.Late {
		s.forget(now)
		s.ended[attempt] = now + lateness
	}
	if len(k.holders)+len(k.waiters) == 0 && k.last < uint64(now.Microseconds()) {
		delete(s.keys, attempt.key)
	}
	return r
}

// forget removes the attempts whose requests can no longer arrive.
func (s *Server) forget(now time.Duration) {
	for attempt, until := range s.ended {
		if now > until {
			delete(s.ended, attempt)
		}
	}
}

// send sends an event to a process. A process that reads too slowly counts as one that cannot be reached.
func (s *Server) send(process string, e event) {
	to := s.streams[process]
	if to == nil {
		return
	}
	select {
	case to.events <- e:
	default:
		to.end()
		delete(s.streams, process)
	}
}

// push writes the events of a process to its stream.
func (s *Server) push(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancel(r.Context())
	defer end()
	process, st := r.URL.Query().Get("process"), &stream{make(chan event, maxEvents), end}
	st.events <- event{Kind: connected}
	s.mu.Lock()
	if old := s.streams[process]; old != nil {
		old.end()
	}
	s.streams[process] = st
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[process] == st {
			delete(s.streams, process)
		}
	}()
	out, lines := http.NewResponseController(w), json.NewEncoder(w)
	for {
		select {
		case e := <-st.events:
			_ = out.SetWriteDeadline(time.Now().Add(writeTime))
			if lines.Encode(e) != nil || out.Flush() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
