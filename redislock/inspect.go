package redislock

import (
	"context"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// Inspect returns the holder and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	return b.svc.Inspect(ctx, key)
}

// List lists the held locks of the prefix. With an empty prefix it omits those of foreign
// clients.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	return b.svc.List(ctx, yield)
}

// Inspect implements backend.Inspector.
func (b *service) Inspect(ctx context.Context, key string) (backend.Info, error) {
	r, err := b.srv.Eval(ctx, b.scripts.inspect, b.keysOf(key, ""), b.channelPrefix)
	if err == nil && r.Status == wrongType {
		err = wrongTypeError(r)
	}
	if err != nil {
		return backend.Info{}, err
	}
	return info(r, key), nil
}

// List implements backend.Lister.
func (b *service) List(ctx context.Context, yield func(backend.Info) bool) error {
	call := func(name string) server.Call {
		return server.Call{Script: b.scripts.inspect, Keys: b.keysOf(name, ""), Args: []any{b.channelPrefix}}
	}
	return b.srv.List(ctx, b.proc, call, info, yield)
}
