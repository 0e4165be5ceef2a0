package bench

import (
	"context"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// natsPeers returns two writes of a key-value bucket. No other lock in Go is known.
func natsPeers(url string) []measure.Target {
	return []measure.Target{floor(func(ctx context.Context) (writes, *peer, error) {
		conn, err := nats.Connect("nats://" + addrOf(url))
		if err != nil {
			return writes{}, nil, err
		}
		p := &peer{
			ping:  func(context.Context) error { return conn.Flush() },
			close: func() error { conn.Close(); return nil },
		}
		js, err := jetstream.New(conn)
		if err != nil {
			return writes{}, nil, err
		}
		kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "floor"})
		if err != nil {
			conn.Close()
			return writes{}, nil, err
		}
		put := func(ctx context.Context, name string) error {
			_, err := kv.Put(ctx, name, []byte("x"))
			return err
		}
		return writes{put, put}, p, nil
	})}
}

// memcachedPeers returns two writes. No other lock in Go is known.
func memcachedPeers(url string) []measure.Target {
	return []measure.Target{floor(func(context.Context) (writes, *peer, error) {
		c := memcache.New(addrOf(url))
		c.MaxIdleConns = 64
		set := func(_ context.Context, name string) error {
			return c.Set(&memcache.Item{Key: "floor:" + name, Value: []byte("x")})
		}
		return writes{set, set}, &peer{ping: func(context.Context) error { return c.Ping() }, close: c.Close}, nil
	})}
}
