package redislock

import (
	"context"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// Inspect returns the holder and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	keys := b.svc.keysOf(key, "")
	r, err := b.svc.srv.Eval(ctx, theScripts.inspect, keys, b.svc.channelPrefix)
	if err == nil && r.Status == wrongType {
		err = wrongTypeError(r)
	}
	if err != nil {
		return backend.Info{}, err
	}
	return info(r, key), nil
}

// List lists the held locks of the prefix. With an empty prefix it omits those of foreign
// clients.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	call := func(name string) server.Call {
		return server.Call{Keys: b.svc.keysOf(name, ""), Args: []any{b.svc.channelPrefix}}
	}
	return b.svc.srv.List(ctx, b.svc.proc, theScripts.inspect, call, info, yield)
}
