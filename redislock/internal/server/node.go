package server

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
)

const (
	maxBatch = 128                    // scripts in a pipeline
	spacing  = 100 * time.Microsecond // as in call.NewBatches
)

// node has the batches of a node of a cluster, or of the server without one. A quarter of the connections, at least one,
// is left to scripts that do not acquire. A script that waits has not been sent, and costs nothing when its context ends.
type node struct{ acquires, confirmed, others *batches }

func (s *Server) newNode() *node {
	n := 1 // connections to a node
	switch c := s.Client.(type) {
	case *redis.Client:
		n = c.Options().PoolSize
	case *redis.ClusterClient:
		n = c.Options().PoolSize
	}
	size := maxBatch
	if s.Confirm != nil {
		size = 1
	}
	return &node{
		acquires:  call.NewBatches(s.Life, max(n-max(n/4, 1), 1), size, spacing, s.send),
		confirmed: call.NewBatches(s.Life, n, 1, spacing, s.send),
		others:    call.NewBatches(s.Life, n, maxBatch, spacing, s.send),
	}
}

// batchesOf returns the batches of a request at the node of its first key.
func (s *Server) batchesOf(ctx context.Context, r request) *batches {
	var at *redis.Client
	if s.Cluster != nil {
		at, _ = s.Cluster.MasterForKey(ctx, r.Keys[0]) // the request itself shows an error
	}
	n, ok := s.nodes.Load(at)
	if !ok {
		n, _ = s.nodes.LoadOrStore(at, s.newNode())
	}
	switch of := n.(*node); {
	case r.Script.Acquires:
		return of.acquires
	case r.confirm:
		return of.confirmed
	default:
		return of.others
	}
}
