// Package locktest is a lock service for tests of programs that use package lock. It is in memory, and its failures
// come when the test says so:
//
//	service := locktest.New()
//	defer service.Close()
//	client := service.Client()       // or lock.Open with service.URL()
//	release := service.Hold("k")     // another process holds the lock k
//	service.Lose("k")                // the service has lost the holders of k, and they learn of it
//	service.Outage(true)             // the service does not answer
//
// Time is that of package time, so in a bubble of [testing/synctest] a test moves it with time.Sleep: it need not wait
// for the end of a TTL.
//
// A mistake of the test, such as Lose of a lock without a holder, is a panic.
package locktest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

const scheme = "locktest"

func init() { backend.Register(scheme, open) }

var services struct {
	sync.Mutex
	last int
	open map[string]*Service
}

// Service is a lock service for one test. It is safe for concurrent use.
type Service struct {
	id     string
	space  *memlock.Space
	others *memlock.Backend // another process
	down   atomic.Bool
	holds  atomic.Uint64

	mu      sync.Mutex
	clients []*lock.Client
}

// New returns a service without locks. Close it at the end of the test.
func New() *Service {
	space := memlock.NewSpace()
	s := &Service{space: space, others: space.Backend()}
	services.Lock()
	defer services.Unlock()
	if services.open == nil {
		services.open = map[string]*Service{}
	}
	services.last++
	s.id = strconv.Itoa(services.last)
	services.open[s.id] = s
	return s
}

// URL returns the URL of the service for [lock.Open], with which a program that is configured can be tested. The test
// closes clients that are opened by it.
func (s *Service) URL() string { return scheme + "://" + s.id }

// Client returns a client of the service. It counts as a process of its own, and is closed by Close.
func (s *Service) Client(opts ...lock.Option) *lock.Client {
	c, err := lock.New(s.session(), opts...)
	if err != nil {
		panic(fmt.Sprintf("locktest: %v", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// Hold makes another process hold a free lock, until release is called. It does not let go by itself. A lock with
// waiters passes to the first of them.
func (s *Service) Hold(name string) (release func()) {
	g, err := s.others.TryAcquire(context.Background(), backend.Request{
		Key: name, Owner: fmt.Sprintf("%032x", s.holds.Add(1)), TTL: backend.MaxTTL, Metadata: "another process of the test",
	})
	if err != nil {
		panic(fmt.Sprintf("locktest: Hold(%q): %v", name, err))
	}
	return func() { _ = g.Release(context.Background()) } // it may be called twice, or after Lose
}

// Lose takes a lock from all who hold it, also readers and permits. The contexts of their leases end at once, with a
// cause that matches [lock.ErrLost]. The next waiter is granted the lock.
func (s *Service) Lose(name string) {
	if h, err := s.others.Break(context.Background(), name, ""); err != nil || h == nil {
		panic(fmt.Sprintf("locktest: Lose(%q): it has no holder", name))
	}
}

// Outage begins an outage of the service, or ends it. During it every request fails: a Lock goes on trying until its
// wait ends, and a lease lasts as long as it is certain, which is up to its TTL, and is then lost. A Lock that waits in the
// queue when the outage begins stays there.
func (s *Service) Outage(on bool) { s.down.Store(on) }

// Close ends an outage, and closes the clients that Client has returned.
func (s *Service) Close() {
	s.Outage(false)
	services.Lock()
	delete(services.open, s.id)
	services.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		_ = c.Close(context.Background())
	}
	s.clients = nil
}

func open(_ context.Context, u *backend.URL) (backend.Backend, error) {
	if err := u.Params.Err(); err != nil {
		return nil, err
	}
	services.Lock()
	defer services.Unlock()
	if len(u.Hosts) == 1 && services.open[u.Hosts[0]] != nil {
		return services.open[u.Hosts[0]].session(), nil
	}
	return nil, fmt.Errorf("%w URL: want that of a Service of package locktest that is not closed", backend.ErrInvalid)
}

var errOutage = backend.NotExecuted(errors.New("the test has begun an outage of the service"))

func (s *Service) reach() error {
	if s.down.Load() {
		return errOutage
	}
	return nil
}
