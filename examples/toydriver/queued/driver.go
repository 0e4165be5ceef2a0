// Package queued is a driver for a service that keeps a queue, as an example of one with package queue. The service is
// the HTTP server in server.go, whose rule is in rule.go.
//
// The driver is the protocol: service.go has the requests, listener.go the events, and this file the rest. Waiting,
// readers, permits, batches and the cleaning up after unknown outcomes are those of queue.Backend.
package queued

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// After an import of this package, lock.Open accepts toyqueue://host:port.
func init() {
	backend.Register("toyqueue", func(ctx context.Context, u *backend.URL) (backend.Backend, error) {
		if err := u.Params.Err(); err != nil {
			return nil, err
		}
		if len(u.Hosts) != 1 {
			return nil, backend.Invalid("URL host", fmt.Sprint(u.Hosts), "one host:port")
		}
		return New(ctx, "http://"+u.Hosts[0])
	})
}

// Backend is a client of the service.
type Backend struct{ *queue.Backend }

// New returns a client of the service at a base URL, when it has its events.
func New(ctx context.Context, base string) (*Backend, error) {
	s := newService(base)
	b := queue.New(s)
	s.start(b)
	if err := s.Listen(ctx, ""); err != nil { // a holder is to be notified of a break from the first moment
		return nil, errors.Join(err, b.Close(ctx))
	}
	return &Backend{b}, nil
}

// newService returns the Service of a new process. It has no events before start is called.
func newService(base string) *service {
	// A transport of its own: Close must not close the connections of others.
	c := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	return &service{base: base, http: c, listener: &listener{base: base, http: c, process: rand.Text()}}
}

// Capabilities declares no more than the service does.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:       "toyqueue",
		Scope:      backend.ScopeNetwork,
		Loss:       backend.LossTTL,
		Order:      backend.FIFO,
		Wake:       backend.WakePush,
		Fencing:    backend.FencingMemory,
		PushesLoss: true,
		Shared:     true,
		Permits:    true,
		MinTTL:     10 * time.Millisecond,
		MaxTTL:     backend.MaxTTL,
		Lateness:   lateness,
	}
}
