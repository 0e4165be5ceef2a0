package plain

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Server is the service: locks in memory. Its four requests are POST /acquire, /renew,
// /release and /abandon, with the parameters key, owner, ttl and metadata.
type Server struct {
	mu        sync.Mutex
	token     uint64
	holds     map[string]held      // by key
	abandoned map[string]time.Time // by owner: remembered until then
}

type held struct {
	owner, metadata string
	token           uint64
	until           time.Time
}

// answer is the reply to each request. If OK is false, the other fields describe the holder.
type answer struct {
	OK       bool
	Owner    string
	Metadata string
	Token    uint64
	Left     time.Duration
}

// NewServer returns a service without locked keys.
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

// do executes a request atomically. Only the server's clock counts.
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
		// A delayed renewal must not shorten the lease after a later one.
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

// forget removes the owners whose requests can no longer arrive.
func (s *Server) forget(now time.Time) {
	for owner, until := range s.abandoned {
		if now.After(until) {
			delete(s.abandoned, owner)
		}
	}
}
