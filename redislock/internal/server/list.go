package server

import (
	"context"
	"sync"
	"time"

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
		v, err := s.Detached(ctx, func(sending *protocol.Sending) (any, error) {
			found, next, err := c.ScanType(ctx, cursor, protocol.ScanPattern(p.Prefix), scanCount, "string").Result()
			if err != nil {
				return nil, Failure(err)
			}
			cursor = next
			return inspectAll(ctx, sending, c, p, found, seen)
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
func inspectAll(ctx context.Context, sending *protocol.Sending, c redis.UniversalClient, p protocol.Process, found []string, seen map[string]bool) ([]backend.Info, error) {
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
	for bySource := false; ; bySource = true {
		pipe := c.Pipeline()
		cmds := make([]protocol.Once, len(names))
		for i, name := range names {
			// the first loads the script for the others
			cmds[i] = protocol.Inspect.Command(ctx, sending, bySource && i == 0, p.Keys(name).Script(), []any{p.ChannelPrefix(), ""})
			_ = pipe.Process(ctx, cmds[i]) // only queues
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		if !bySource && redis.HasErrorPrefix(cmds[0].Err(), "NOSCRIPT") {
			continue
		}
		infos := make([]backend.Info, 0, len(names))
		for i, cmd := range cmds {
			if _, moved := redis.IsMovedError(cmd.Err()); moved {
				continue // listed by its new master
			}
			if cmd.Err() != nil {
				return nil, Failure(cmd.Err())
			}
			r, err := protocol.ParseReply(cmd.Val(), time.Time{})
			if err != nil {
				return nil, err
			}
			if r.Status != protocol.Yes { // free, or of another type, by now
				continue
			}
			in := r.Info(names[i])
			if p.Prefix == "" && in.Holder.Foreign {
				continue
			}
			infos = append(infos, in)
		}
		return infos, nil
	}
}
