package server

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

const scanCount = 500 // keys in a step of SCAN and in a pipeline

// List lists the held locks of the prefix. With an empty prefix every string on the server
// could be a lock, so List then omits those of foreign clients.
func (s *Server) List(ctx context.Context, p protocol.Process, yield func(backend.Info) bool) error {
	masters := []redis.UniversalClient{s.Client}
	if s.Cluster != nil {
		masters = masters[:0]
		var mu sync.Mutex
		err := s.Cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			masters = append(masters, c)
			return nil
		})
		if err != nil {
			return Failure(err)
		}
	}
	seen := map[string]bool{} // SCAN may repeat keys, and a slot may move
	for _, c := range masters {
		more, err := s.list(ctx, c, p, seen, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (s *Server) list(ctx context.Context, c redis.UniversalClient, p protocol.Process, seen map[string]bool, yield func(backend.Info) bool) (bool, error) {
	for cursor := uint64(0); ; {
		v, err := s.Detached(ctx, nil, func(sending *protocol.Sending) (any, error) {
			found, next, err := c.ScanType(ctx, cursor, protocol.ScanPattern(p.Prefix), scanCount, "string").Result()
			if err != nil {
				return nil, Failure(err)
			}
			cursor = next
			return s.inspectAll(ctx, sending, c, p, found, seen)
		})
		if err != nil {
			return false, err
		}
		for _, i := range v.([]backend.Info) {
			if !yield(i) {
				return false, nil
			}
		}
		if cursor == 0 {
			return true, nil
		}
	}
}

// inspectAll inspects the keys in one round trip. It skips those in seen.
func (s *Server) inspectAll(ctx context.Context, sending *protocol.Sending, c redis.UniversalClient, p protocol.Process, found []string, seen map[string]bool) ([]backend.Info, error) {
	var names []string
	for _, key := range found {
		if name, ok := protocol.LockName(p.Prefix, key); ok && !seen[key] {
			seen[key] = true
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return []backend.Info{}, nil
	}
	calls := make([]Call, len(names))
	for i, name := range names {
		calls[i] = Call{p.Keys(name).Script(), []any{p.ChannelPrefix(), ""}}
	}
	infos := make([]backend.Info, 0, len(names))
	for i, r := range s.Batch(ctx, sending, c, protocol.Inspect, calls, nil) {
		if _, moved := redis.IsMovedError(r.Err); moved {
			continue // listed by its new master
		}
		if r.Err != nil {
			return nil, Failure(r.Err)
		}
		if r.Reply.Status != protocol.Yes && r.Reply.Status != protocol.Shared { // free, or of another type, by now
			continue
		}
		in := r.Reply.Info(names[i])
		if p.Prefix == "" && in.Holder.Foreign {
			continue
		}
		infos = append(infos, in)
	}
	return infos, nil
}
