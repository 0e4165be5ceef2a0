package etcdlock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// mute is a stream that a server has taken and never answers.
type mute struct{ grpc.ClientStream }

func (m mute) SendMsg(any) error { return nil }

func (m mute) RecvMsg(any) error {
	<-m.Context().Done()
	return m.Context().Err()
}

// TestSilentKeepAlive: the first server says nothing, and the next is asked while there
// is time.
func TestSilentKeepAlive(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server(t)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, d, cc, method, opts...)
				if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") && asked.Add(1) == 1 {
					s = mute{s}
				}
				return s, err
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := c.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{client: c}
	if ttl, err := b.keepAlive(ctx, l.ID, 20*time.Millisecond); err != nil || ttl <= 0 || asked.Load() != 2 {
		t.Errorf("want the second of two answered, got a TTL of %d, %v, %d asked", ttl, err, asked.Load())
	}
}
