// Package server sends requests to a Redis server or cluster for package redislock.
package server

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// ConfirmTimeout is how long the server may take to confirm a subscription.
const ConfirmTimeout = 5 * time.Second

// Server is a client of one server or cluster, with the life of its backend. Its methods may be called concurrently.
type Server struct {
	*call.Life
	Client  redis.UniversalClient
	Cluster *redis.ClusterClient // Client, if it is of a cluster
	Own     bool                 // Close closes Client
	// Failed handles the error of a request, and may repeat it by send. It may be nil.
	Failed func(ctx context.Context, err error, send func() error) error
	// Confirm runs a script that acquires, or that EvalConfirmed is called for, and waits for replicas. It is nil if there are
	// none. The first context is the caller's, the second that of the request.
	Confirm func(caller, within context.Context, sending *call.Sending, s *protocol.Script, keys []string, args []any) (protocol.Reply, error)

	nodes sync.Map // *node, by *redis.Client of a cluster's node, nil without a cluster
}

// New returns a Server that uses client.
func New(client redis.UniversalClient) *Server {
	s := &Server{Life: call.NewLife(), Client: client}
	s.Cluster, _ = client.(*redis.ClusterClient)
	return s
}

// Ping makes one round trip.
func (s *Server) Ping(ctx context.Context) error {
	_, err := call.Detached(ctx, s.Life, func(ctx context.Context, _ *call.Sending) (any, error) {
		if err := s.Client.Process(ctx, protocol.Once{Cmd: redis.NewCmd(ctx, "ping")}); err != nil {
			return nil, backend.NotExecuted(Failure(err))
		}
		return nil, nil
	})
	return err
}

// Close ends Life, and waits for its tasks until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.Stop()
	if s.Own {
		_ = s.Client.Close() // it may be closed already
	}
	return s.Life.Close(ctx)
}
