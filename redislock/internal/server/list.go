package server

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

const scanCount = 500 // keys in a step of SCAN and in a pipeline

// List lists the held locks of the prefix. With an empty prefix every string on the server
// could be a lock, so List then omits those of foreign clients.
// call is the call of INSPECT for the lock of a name, and info what its reply says.
func (s *Server) List(ctx context.Context, p protocol.Process, call func(string) Call,
	info func(protocol.Reply, string) backend.Info, yield func(backend.Info) bool) error {
	l := lister{s, p, call, info, map[string]bool{}}
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
	for _, c := range masters {
		more, err := l.list(ctx, c, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

type lister struct {
	*Server
	p    protocol.Process
	call func(name string) Call
	info func(r protocol.Reply, name string) backend.Info
	seen map[string]bool // SCAN may repeat keys, and a slot may move
}

func (l lister) list(ctx context.Context, c redis.UniversalClient, yield func(backend.Info) bool) (bool, error) {
	for cursor := uint64(0); ; {
		v, err := call.Detached(ctx, l.Life, func(ctx context.Context, sending *call.Sending) (any, error) {
			found, next, err := c.ScanType(ctx, cursor, protocol.ScanPattern(l.p.Prefix), scanCount, "string").Result()
			if err != nil {
				return nil, Failure(err)
			}
			cursor = next
			return l.inspectAll(ctx, sending, c, found)
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

// inspectAll inspects the keys in one round trip. It skips those that were seen.
func (l lister) inspectAll(ctx context.Context, sending *call.Sending, c redis.UniversalClient, found []string) ([]backend.Info, error) {
	var names []string
	var calls []Call
	for _, key := range found {
		if name, ok := protocol.LockName(l.p.Prefix, key); ok && !l.seen[key] {
			l.seen[key] = true
			c := l.call(name)
			c.Sending = sending
			names, calls = append(names, name), append(calls, c)
		}
	}
	infos := make([]backend.Info, 0, len(names))
	if len(names) == 0 {
		return infos, nil
	}
	for i, r := range l.Batch(ctx, c, calls, nil) {
		if _, moved := redis.IsMovedError(r.Err); moved {
			continue // listed by its new master
		}
		if r.Err != nil {
			return nil, Failure(r.Err)
		}
		in := l.info(r.Reply, names[i])
		if in.Holder == nil || l.p.Prefix == "" && in.Holder.Foreign { // free, or of another type, by now
			continue
		}
		infos = append(infos, in)
	}
	return infos, nil
}
