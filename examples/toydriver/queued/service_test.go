package queued

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

func TestService(t *testing.T) { queuetest.Test(t, harness(t)) }

func TestDifferential(t *testing.T) { queuetest.Differential(t, harness(t), 200) }

func harness(t *testing.T) queuetest.Harness {
	g := &gate{server: NewServer(), shut: map[string]bool{}, streams: map[string]*sync.WaitGroup{}}
	web := httptest.NewServer(g)
	t.Cleanup(web.Close)
	return queuetest.Harness{
		Open: func(t testing.TB, events queue.Events) queue.Service {
			s := newService(web.URL)
			s.start(events)
			if err := s.Listen(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			return s
		},
		Disconnect: func(_ testing.TB, s queue.Service) (connect func()) {
			l := s.(*service).listener
			g.set(l.process, true)
			l.Doubt("")
			g.wait(l.process)
			return func() { g.set(l.process, false) }
		},
	}
}

// gate is a server that refuses the streams of some processes.
type gate struct {
	server http.Handler

	mu      sync.Mutex
	shut    map[string]bool
	streams map[string]*sync.WaitGroup // that the server has not ended yet
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	process := r.URL.Query().Get("process") // of a stream
	if process != "" {
		g.mu.Lock()
		if g.shut[process] {
			g.mu.Unlock()
			http.Error(w, "shut", http.StatusServiceUnavailable)
			return
		}
		if g.streams[process] == nil {
			g.streams[process] = &sync.WaitGroup{}
		}
		streams := g.streams[process]
		streams.Add(1)
		g.mu.Unlock()
		defer streams.Done()
	}
	g.server.ServeHTTP(w, r)
}

func (g *gate) set(process string, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut[process] = shut
}

// wait waits until the server has ended the streams of a process.
func (g *gate) wait(process string) {
	g.mu.Lock()
	streams := g.streams[process]
	g.mu.Unlock()
	streams.Wait()
}
