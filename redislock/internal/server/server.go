// Package server sends requests to a Redis server or cluster for the drivers redislock
// and redlock.
package server

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// ConfirmTimeout is how long the server may take to confirm a subscription.
const ConfirmTimeout = 5 * time.Second

// Server is a client of one server or cluster. It tracks the requests in flight, so
// that Close can wait for them. Its methods may be called concurrently.
type Server struct {
	Client  redis.UniversalClient
	Cluster *redis.ClusterClient // Client, if it is of a cluster
	Own     bool                 // Close closes Client
	// Around calls send, which sends a script, and may repeat it. It may be nil.
	Around func(ctx context.Context, send func() error) error

	Life context.Context // ends with Stop
	end  context.CancelFunc
	jobs chan func() // to an idle worker

	places sync.Map // by *redis.Client of a node, nil without a cluster: chan struct{}, see Places

	mu     sync.Mutex // guards the fields below
	closed bool
	tasks  sync.WaitGroup // requests and goroutines
}

// New returns a Server that uses client.
func New(client redis.UniversalClient) *Server {
	s := &Server{Client: client, jobs: make(chan func())}
	s.Cluster, _ = client.(*redis.ClusterClient)
	s.Life, s.end = context.WithCancel(context.Background())
	return s
}

// Sleep returns after d, or when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Ping makes one round trip.
func (s *Server) Ping(ctx context.Context) error {
	_, err := s.Detached(ctx, nil, func(*protocol.Sending) (any, error) {
		if err := s.Client.Process(ctx, protocol.Once{Cmd: redis.NewCmd(ctx, "ping")}); err != nil {
			return nil, backend.NotExecuted(Failure(err))
		}
		return nil, nil
	})
	return err
}

// Stop ends Life. No task begins after it.
func (s *Server) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
}

// Close stops the server and waits for its tasks until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.Stop()
	if s.Own {
		_ = s.Client.Close() // it may be closed already
	}
	done := make(chan struct{})
	go func() { s.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
