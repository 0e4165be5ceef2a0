package server

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Places returns the places for requests that acquire at the node of a key, nil for another script:
// a quarter of the connections, at least one, is left to renewals and releases. An acquire that
// waits for a place has not been sent, and costs nothing when its context ends.
func (s *Server) Places(ctx context.Context, script *protocol.Script, key string) chan struct{} {
	if !script.Acquires {
		return nil
	}
	var node *redis.Client
	connections := 0
	switch c := s.Client.(type) {
	case *redis.Client:
		connections = c.Options().PoolSize
	case *redis.ClusterClient:
		var err error
		if node, err = c.MasterForKey(ctx, key); err != nil {
			return nil
		}
		connections = c.Options().PoolSize
	}
	places, ok := s.places.Load(node)
	if !ok {
		places, _ = s.places.LoadOrStore(node, make(chan struct{}, max(connections-max(connections/4, 1), 1)))
	}
	return places.(chan struct{})
}
