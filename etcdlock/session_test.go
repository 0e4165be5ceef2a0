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
	"github.com/interlock-go/lock/backend/places"
)

// TestPushesLoss ends grants in each way of which the servers notify the process.
func TestPushesLoss(t *testing.T) {
	b := newBackend(t, server(t))
	for what, end := range map[string]func() error{
		"break":  func() error { return second(b.Break(t.Context(), "k", "")) },
		"revoke": func() error { return second(b.Client().Revoke(t.Context(), b.Leases()[0])) },
		"marker": func() error { return second(b.Client().Delete(t.Context(), b.svc.marker(b.Leases()[0]))) },
	} {
		for range 2 {
			req, lost := losable("k", time.Minute)
			g := try(t, b, req)
			if err := end(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-lost:
				if !errors.Is(err, backend.ErrLost) {
					t.Errorf("%s: want ErrLost, got %v", what, err)
				}
			case <-time.After(soon):
				t.Fatalf("%s: the loss was not reported", what)
			}
			if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s: Renew: want ErrLost, got %v", what, err)
			}
			if _, err := b.Client().Delete(t.Context(), g.key); err != nil { // the lease may still be there
				t.Fatal(err)
			}
		}
	}
}

// TestHeldPlacesAreNotWatched: a process watches one key for each TTL, however much it holds.
func TestHeldPlacesAreNotWatched(t *testing.T) {
	addr := privately(t)
	b := newBackend(t, addr)
	for _, key := range []string{"a", "b", "c", "d"} {
		g := try(t, b, request(key, time.Minute))
		if err := g.Renew(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the marker is not watched", func() bool { return serverWatches(t, addr) > 0 })
	if n := serverWatches(t, addr); n != 1 {
		t.Errorf("4 grants: want one watch, got %d", n)
	}
}

// streams returns a client whose streams of keep-alives are wrapped.
func streams(t *testing.T, wrap func(n int32, s grpc.ClientStream) grpc.ClientStream) (*clientv3.Client, *atomic.Int32) {
	t.Helper()
	var opened atomic.Int32
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server(t)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(func(
			ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := next(ctx, d, cc, method, opts...)
			if err == nil && strings.HasSuffix(method, "/LeaseKeepAlive") {
				s = wrap(opened.Add(1), s)
			}
			return s, err
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, &opened
}

func sessionOf(t *testing.T, c *clientv3.Client, ttl time.Duration) *session {
	t.Helper()
	b, err := New(c, WithPrefix(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	s, err := b.svc.Open(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*session)
}

// silentStream is a stream that a server accepts and never answers.
type silentStream struct{ grpc.ClientStream }

func (s silentStream) SendMsg(any) error { return nil }

func (s silentStream) RecvMsg(any) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// TestSilentKeepAlive checks that a second server is asked while the first is silent, and stays the one that is asked.
func TestSilentKeepAlive(t *testing.T) {
	t.Parallel()
	c, opened := streams(t, func(n int32, s grpc.ClientStream) grpc.ClientStream {
		if n == 1 {
			return silentStream{s}
		}
		return s
	})
	ss := sessionOf(t, c, 5*time.Second)
	for range 3 {
		begun := time.Now()
		if err := ss.Renew(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if sent, _ := ss.Trust(); sent.Before(begun) {
			t.Errorf("trust counts from %v before the renewal", begun.Sub(sent))
		}
	}
	if n := opened.Load(); n != 2 {
		t.Errorf("want two streams, got %d", n)
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

// TestLateKeepAlive delays the answers: each counts from its own request, and not from a later one.
func TestLateKeepAlive(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c, _ := streams(t, func(_ int32, s grpc.ClientStream) grpc.ClientStream { return slowStream{s, release} })
	ss := sessionOf(t, c, time.Hour)
	k := &ss.s.keeper
	k.send(ss, 0)
	eventually(t, "no stream", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.streams[0] != nil
	})
	st := k.streams[0]
	for range 2 {
		st.send(ss)
	}
	st.mu.Lock()
	first := st.waiting[ss.id][0].at
	last := st.waiting[ss.id][len(st.waiting[ss.id])-1].at
	st.mu.Unlock()
	before, _ := ss.Trust()
	if !before.Before(first) || !first.Before(last) {
		t.Fatalf("trust from %v, requests from %v to %v", before, first, last)
	}
	var counted []time.Time
	close(release)
	eventually(t, "no answers", func() bool {
		at, _ := ss.Trust()
		counted = append(counted, at)
		return at.Equal(last)
	})
	for _, at := range counted {
		if at.After(last) {
			t.Errorf("trust counts from %v, after the last request", at)
		}
	}
}

// TestEndedSession: the servers do not know the lease of a session any more.
func TestEndedSession(t *testing.T) {
	b := newBackend(t, server(t))
	s, err := b.svc.Open(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ss := s.(*session)
	if _, err := b.Client().Revoke(t.Context(), ss.id); err != nil {
		t.Fatal(err)
	}
	for _, m := range []places.Mode{places.Try, places.Enter, places.Follow} {
		_, err := b.svc.Put(t.Context(), places.Put{Request: request("k", time.Minute), Session: s, Mode: m})
		if !errors.Is(err, places.ErrEnded) {
			t.Errorf("mode %d: want ErrEnded, got %v", m, err)
		}
	}
	req := request("k", time.Minute)
	r := b.svc.Remove(t.Context(), []places.Removal{{Key: "k", Session: s, Asked: req, Late: true}})
	if r[0].Err != nil || r[0].Existed {
		t.Errorf("Remove: %+v", r[0])
	}
	if err := s.Renew(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew: want ErrLost, got %v", err)
	}
}

// TestShorterAnswer: an answer that has less than the TTL is trusted for that.
func TestShorterAnswer(t *testing.T) {
	ss := &session{ttl: 10 * time.Second, clock: time.NewTimer(time.Hour), news: make(chan struct{})}
	sent := time.Now()
	ss.answered(sent, 4)
	if from, ttl := ss.Trust(); !from.Add(ttl).Equal(sent.Add(4 * time.Second)) {
		t.Errorf("trusted for %v from the request, want 4s", from.Add(ttl).Sub(sent))
	}
	ss.answered(sent, 10)
	if from, ttl := ss.Trust(); !from.Add(ttl).Equal(sent.Add(10 * time.Second)) {
		t.Errorf("a later answer: trusted for %v, want 10s", from.Add(ttl).Sub(sent))
	}
}
