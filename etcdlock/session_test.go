package etcdlock

import (
	"context"
	"errors"
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
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	if ttl, err := b.keepAlive(ctx, l.ID, 20*time.Millisecond); err != nil || ttl <= 0 || requests.Load() != 2 {
		t.Errorf("want an answer to the second of two requests, got a TTL of %d, %v, %d requests", ttl, err, requests.Load())
	}
}

// slowStream is a stream whose answers arrive when release is closed.
type slowStream struct {
	grpc.ClientStream
	release chan struct{}
}

func (s slowStream) RecvMsg(m any) error {
	select {
	case <-s.release:
	case <-s.Context().Done():
	}
	return s.ClientStream.RecvMsg(m)
}

// TestLateKeepAlive delays the answer to a request that was given up: it is no answer to the
// next request, which may come after the end of the lease.
func TestLateKeepAlive(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var sent atomic.Int32
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server(t)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
			func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, d, cc, method, opts...)
				if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") {
					sent.Add(1)
					s = slowStream{s, release}
				}
				return s, err
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	l, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.leaseStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.keepAlive(short, l.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("want no answer, got %v", err)
	}
	if _, err := c.Revoke(t.Context(), l.ID); err != nil {
		t.Fatal(err)
	}
	close(release)
	if ttl, err := s.keepAlive(t.Context(), l.ID); err != nil || ttl != 0 {
		t.Errorf("a lease that was revoked before the request: a TTL of %d, %v", ttl, err)
	}
	if again, err := b.leaseStream(t.Context()); again != s || sent.Load() != 1 {
		t.Errorf("want one stream, got %d, %v", sent.Load(), err)
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
