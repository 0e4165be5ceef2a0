package redislock

import (
	"context"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// Inspect returns the holder and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	k := b.svc.proc.Keys(key)
	r, err := b.svc.srv.Eval(ctx, b.svc.scripts.inspect, keysOf(k, ""), b.svc.proc.ChannelPrefix())
	if err == nil && r.Status == wrongType {
		err = wrongTypeError(r, k.Lock)
	}
	if err != nil {
		return backend.Info{}, err
	}
	return info(r, key), nil
}

// List lists the held locks of the prefix. With an empty prefix it omits those of foreign
// clients.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	p := b.svc.proc
	call := func(name string) server.Call {
		return server.Call{Keys: keysOf(p.Keys(name), ""), Args: []any{p.ChannelPrefix()}}
	}
	return b.svc.srv.List(ctx, p, b.svc.scripts.inspect, call, info, yield)
}
