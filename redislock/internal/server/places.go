package server

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// place is that of a request that acquires, at the node of its key. It is nil for another one.
type place chan struct{}

func (p place) leave() {
	if p != nil {
		<-p
	}
}

// EnterPlace waits for a place for a request that acquires: a quarter of the connections, at least one, is left to
// renewals and releases. A request that waits for a place has not been sent, and costs nothing when its context ends. It
// leaves its place when it does not occupy a connection any more.
func (s *Server) EnterPlace(ctx context.Context, script *protocol.Script, key string) (leave func(), err error) {
	p, err := s.enterPlace(ctx, script, key)
	return p.leave, err
}

func (s *Server) enterPlace(ctx context.Context, script *protocol.Script, key string) (place, error) {
	if !script.Acquires {
		return nil, nil
	}
	var node *redis.Client
	if s.Cluster != nil {
		var err error
		if node, err = s.Cluster.MasterForKey(ctx, key); err != nil {
			return nil, nil //nolint:nilerr // the request itself shows it
		}
	}
	all, ok := s.places.Load(node)
	if !ok {
		n := s.connections()
		all, _ = s.places.LoadOrStore(node, make(place, max(n-max(n/4, 1), 1)))
	}
	p := all.(place)
	select {
	case p <- struct{}{}:
		return p, nil
	default:
	}
	select {
	case p <- struct{}{}:
		return p, nil
	case <-ctx.Done():
		return nil, backend.NotExecuted(ctx.Err())
	case <-s.Context().Done():
		return nil, backend.ErrClosed
	}
}

// connections returns how many connections the client has to a node.
func (s *Server) connections() int {
	switch c := s.Client.(type) {
	case *redis.Client:
		return c.Options().PoolSize
	case *redis.ClusterClient:
		return c.Options().PoolSize
	}
	return 1
}
