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

	"github.com/interlock-go/lock/backend"
)

// silentStream is a stream that a server accepts and never answers.
type silentStream struct{ grpc.ClientStream }

func (s silentStream) SendMsg(any) error { return nil }

func (s silentStream) RecvMsg(any) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// TestSilentKeepAlive checks that a second server is asked while the first is silent.
func TestSilentKeepAlive(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server(t)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, d, cc, method, opts...)
				if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") && requests.Add(1) == 1 {
					s = silentStream{s}
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
	if ttl, err := b.keepAlive(ctx, l.ID, 20*time.Millisecond); err != nil || ttl <= 0 || requests.Load() != 2 {
		t.Errorf("want an answer to the second of two requests, got a TTL of %d, %v, %d requests", ttl, err, requests.Load())
	}
}

// TestIdleSession ends a session that is not used, also if its clock has ended it
// before.
func TestIdleSession(t *testing.T) {
	for what, end := range map[string]error{"idle": nil, "ended and idle": backend.ErrLost} {
		b := newBackend(t, server(t))
		s, err := b.session(t.Context(), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if s.endIfIdle() {
			t.Errorf("%s: a session with a user ends", what)
		}
		s.leave()
		if s.endIfIdle() {
			t.Errorf("%s: a session that was just used ends", what)
		}
		if end != nil {
			s.end(end, false)
		}
		b.mu.Lock()
		s.lastUsed = time.Now().Add(-time.Hour)
		b.mu.Unlock()
		if !s.endIfIdle() {
			t.Errorf("%s: the session stays", what)
		}
		eventually(t, what+": the lease is not revoked", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.sessions) == 0 && len(b.expired) == 0
		})
		if r, err := b.client.TimeToLive(t.Context(), s.id); err != nil || r.TTL != -1 {
			t.Errorf("%s: the lease: %v, %v", what, r, err)
		}
	}
}
