package redislock

import (
	"context"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Inspect returns the holder and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	k := b.proc.Keys(key)
	r, err := b.srv.Eval(ctx, protocol.Inspect, k.Script(), b.proc.ChannelPrefix(), "")
	if err == nil {
		err = r.CheckType(k)
	}
	if err != nil {
		return backend.Info{}, err
	}
	return r.Info(key), nil
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	k := b.proc.Keys(key)
	r, err := b.srv.Eval(ctx, breakScript, k.Script(), b.proc.ChannelPrefix(), owner)
	if err == nil {
		err = r.CheckType(k)
	}
	if err == nil && r.Status == protocol.OtherOwner {
		err = r.LockedError()
	}
	if err != nil || r.Status != protocol.Yes {
		return nil, err
	}
	b.follow(k, r.Num(3))
	h := r.Holder()
	return &h, nil
}

// List lists the held locks of the prefix. With an empty prefix it omits those of foreign
// clients.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	return b.srv.List(ctx, b.proc, yield)
}
