package toydriver

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Server is the service: locks in memory behind four POST requests, acquire, renew,
// release and abandon, each with the parameters key, owner, ttl and metadata.
type Server struct {
	mu        sync.Mutex
	token     uint64
	holds     map[string]held      // by key
	abandoned map[string]time.Time // owners, until when they are remembered
}

type held struct {
	owner, metadata string
	token           uint64
	until           time.Time
}

// answer is what every request gets. If OK is false the rest describes the holder.
type answer struct {
	OK       bool
	Owner    string
	Metadata string
	Token    uint64
	Left     time.Duration
}

// NewServer returns a service on which nothing is held.
func NewServer() *Server {
	return &Server{holds: map[string]held{}, abandoned: map[string]time.Time{}}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ttl, err := time.ParseDuration(q.Get("ttl"))
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "want POST with a ttl", http.StatusBadRequest)
		return
	}
	a := s.do(r.URL.Path, q.Get("key"), q.Get("owner"), q.Get("metadata"), ttl)
	_ = json.NewEncoder(w).Encode(a)
}

// do executes a request at one moment, by the server's clock alone.
func (s *Server) do(op, key, owner, metadata string, ttl time.Duration) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	h, ok := s.holds[key]
	if ok && !now.Before(h.until) {
		delete(s.holds, key)
		ok = false
	}
	mine := ok && h.owner == owner
	switch op {
	case "/acquire":
		if _, late := s.abandoned[owner]; late {
			return answer{}
		}
		if !ok {
			s.token++
			h, mine = held{owner, metadata, s.token, time.Time{}}, true
		}
		if !mine {
			return answer{Owner: h.owner, Metadata: h.metadata, Token: h.token, Left: h.until.Sub(now)}
		}
		h.until = now.Add(ttl)
		s.holds[key] = h
	case "/renew":
		// Never shorter: a renewal that was held up on its way must not cut a later one.
		if until := now.Add(ttl); mine && until.After(h.until) {
			h.until = until
			s.holds[key] = h
		}
	case "/release", "/abandon":
		if mine {
			delete(s.holds, key)
		}
		if op == "/abandon" {
			s.forget(now)
			s.abandoned[owner] = now.Add(ttl)
		}
	}
	return answer{OK: mine, Owner: owner, Token: h.token}
}

// forget drops the owners whose requests cannot be on their way any more.
func (s *Server) forget(now time.Time) {
	for owner, until := range s.abandoned {
		if now.After(until) {
			delete(s.abandoned, owner)
		}
	}
}
