package placestest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Server is a service with ordered places, and sessions that end by its clock.
type Server struct {
	// Jitter is by how much later than others a reply may arrive.
	Jitter time.Duration
	// WatchChecks: the request to watch a place also compares it with its version.
	WatchChecks bool
	// Views: the Service of a process is a places.Viewer too, see [Client.Service].
	Views bool

	mu       sync.Mutex // guards everything
	revision uint64
	keys     map[string][]*place // in the order of the places
	watches  map[*watch]struct{}
}

type place struct {
	places.Place
	session *Session
}

type watch struct {
	key, id string // the id is "" if it is of all places
	changed func(places.Place, places.Change)
	puts    bool // it reports what is put and updated too

	due   []func()   // events that are on their way; guarded by Server.mu
	order sync.Mutex // of the reports
}

// report reports the first event that is due.
func (s *Server) report(w *watch) {
	w.order.Lock()
	defer w.order.Unlock()
	s.mu.Lock()
	first := w.due[0]
	w.due = w.due[1:]
	_, watches := s.watches[w]
	s.mu.Unlock()
	if watches {
		first()
	}
}

// NewServer returns a Server without places.
func NewServer() *Server {
	return &Server{keys: map[string][]*place{}, watches: map[*watch]struct{}{}}
}

// Queue returns the places of a key.
func (s *Server) Queue(key string) places.Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	var q places.Queue
	for _, p := range s.keys[key] {
		q.Places = append(q.Places, p.Place)
	}
	return q
}

// Watches returns how many watches and views there are.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

// Delete removes a place, as an operator may.
func (s *Server) Delete(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(func(p *place) bool { return p.Owner == owner })
}

// Interrupt ends all watches, without reporting what happens from now on.
func (s *Server) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		delete(s.watches, w)
		go w.changed(places.Place{ID: w.id}, places.Interrupted)
	}
}

// id names a place by the number of its attempt, so later places have it too.
func (s *Session) id(key string, number int) string {
	return s.name + "/" + key + "/" + strconv.Itoa(number)
}

// put puts a place, or returns the one that the attempt has. s.mu is held.
func (s *Server) put(session *Session, req *places.Put) *place {
	id := session.id(req.Key, req.Number)
	if p, _ := s.find(id); p != nil {
		if p.Owner != req.Owner {
			panic(fmt.Sprintf("attempts %s and %s have the number %d", p.Owner, req.Owner, req.Number))
		}
		return p
	}
	s.revision++
	p := &place{session: session, Place: places.Place{
		Contender: backend.Contender{Owner: req.Owner, Metadata: req.Metadata, Share: req.Share},
		ID:        id, Session: session.name, Order: s.revision, Token: s.revision, Version: s.revision,
	}}
	s.keys[req.Key] = append(s.keys[req.Key], p)
	s.notify(req.Key, p.Place, places.Updated)
	return p
}

// remove ends places, and returns how many. s.mu is held.
func (s *Server) remove(which func(*place) bool) (n int) {
	for key, all := range s.keys {
		s.keys[key] = slices.DeleteFunc(slices.Clone(all), func(p *place) bool {
			if !which(p) {
				return false
			}
			n++
			s.revision++
			s.notify(key, places.Place{ID: p.ID, Version: s.revision}, places.Ended)
			return true
		})
		if len(s.keys[key]) == 0 {
			delete(s.keys, key)
		}
	}
	return n
}

// notify reports a change after the delay of the network, in order. s.mu is held.
func (s *Server) notify(key string, p places.Place, c places.Change) {
	for w := range s.watches {
		if w.key == key && (w.id == p.ID || w.id == "" && (w.puts || c == places.Ended)) {
			w.due = append(w.due, func() { w.changed(p, c) })
			time.AfterFunc(delay, func() { s.report(w) })
		}
	}
}

// read returns the places of a key up to an order. s.mu is held.
func (s *Server) read(key string, upTo uint64, last int) (q places.Queue) {
	for _, p := range s.keys[key] {
		if p.Order <= upTo {
			q.Places = append(q.Places, p.Place)
		}
	}
	if over := len(q.Places) - last; last > 0 && over > 0 {
		q.Places, q.More = q.Places[over:], true
	}
	return q
}

// find returns a place by its id, and its key. s.mu is held.
func (s *Server) find(id string) (*place, string) {
	for key, all := range s.keys {
		for _, p := range all {
			if p.ID == id {
				return p, key
			}
		}
	}
	return nil, ""
}
