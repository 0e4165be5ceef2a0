package etcdlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/interlock-go/lock/backend"
)

// network loses what the client sends to change a key, or the answer to that.
type network struct {
	mu   sync.Mutex
	lose string               // "", "request" or "reply"
	says []error              // instead of the next answers, to requests that are not executed
	late func() (bool, error) // executes the last request that was lost, and tells whether its conditions held
}

func (n *network) set(lose string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = lose
}

// answer lets the next requests be answered with an error, and returns how many of
// those before were not.
func (n *network) answer(err error, times int) (left int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left, n.says = len(n.says), slices.Repeat([]error{err}, times)
	return left
}

func (n *network) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	n.mu.Lock()
	lose := n.lose
	if method != "/etcdserverpb.KV/Txn" {
		lose = ""
	}
	if lose == "" && method == "/etcdserverpb.KV/Txn" && len(n.says) > 0 {
		err := n.says[0]
		n.says = n.says[1:]
		n.mu.Unlock()
		return err
	}
	if lose == "request" {
		n.late = func() (bool, error) {
			var r etcdserverpb.TxnResponse
			err := invoke(context.WithoutCancel(ctx), method, req, &r, cc, opts...)
			return r.Succeeded, err
		}
	}
	n.mu.Unlock()
	if lose != "request" {
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil || lose == "" {
			return err
		}
	}
	return status.Error(codes.Unavailable, "the connection was lost")
}

func lossy(t *testing.T) (*Backend, *network) {
	t.Helper()
	n := &network{}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server(t)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(n.intercept)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	b, err := New(c, WithPrefix(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.set("")
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b, n
}

// leaseOf is how many seconds the lease of a key lasts.
func leaseOf(t *testing.T, b *Backend, key string) int64 {
	t.Helper()
	r, err := b.client.Get(t.Context(), key)
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, r, err)
	}
	l, err := b.client.TimeToLive(t.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	return l.GrantedTTL
}

// TestLateMove executes a renewal that moves the key to another lease when a later
// one has moved it already: it would put the key under a lease that nobody keeps.
func TestLateMove(t *testing.T) {
	b, n := lossy(t)
	g := try(t, b, request("k", 5*time.Second))
	n.set("request")
	if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrUncertain) {
		t.Fatalf("a renewal whose request was lost: want ErrUncertain, got %v", err)
	}
	n.set("")
	if err := g.Renew(t.Context(), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if done, err := n.late(); err != nil || done {
		t.Errorf("a renewal that comes late: want it refused, got %v, %v", done, err)
	}
	if ttl := leaseOf(t, b, g.key); ttl != 120 {
		t.Errorf("the key is under a lease of %d s, want that of the last renewal", ttl)
	}
	release(t, g)
}

// TestUnansweredMove is about a key that may be under either of two leases: trust
// ends with the one that ends first, whichever was asked for.
func TestUnansweredMove(t *testing.T) {
	b, n := lossy(t)
	g := try(t, b, request("k", 5*time.Second))
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	n.set("reply")
	for _, ttl := range []time.Duration{2 * time.Minute, 5 * time.Second} {
		if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrUncertain) {
			t.Fatalf("a renewal whose reply was lost: want ErrUncertain, got %v", err)
		}
	}
	n.set("")
	if ttl := leaseOf(t, b, g.key); ttl != 5 {
		t.Fatalf("the key is under a lease of %d s, want it moved to that of 5 s", ttl)
	}
	if left := time.Until(g.Until()); left > 5*time.Second {
		t.Errorf("a key that was moved to a lease of 5 s, without an answer: trusted for %v", left)
	}
	release(t, g)
}

// TestServersThatCannotNow answers as in an election and as in a restart: that passes,
// but not as soon as a broken connection is replaced.
func TestServersThatCannotNow(t *testing.T) {
	for what, answer := range map[string]error{
		"no leader":            rpctypes.ErrGRPCNoLeader,
		"the leader has gone":  rpctypes.ErrGRPCTimeoutDueToLeaderFail,
		"the server stops":     rpctypes.ErrGRPCStopped,
		"there is no listener": status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b, n := lossy(t)
			for how, acquire := range map[string]func(context.Context, backend.Request) (backend.Grant, error){"try": b.TryAcquire, "wait": b.Acquire} {
				n.answer(answer, 5)
				g, err := acquire(t.Context(), request("k", time.Minute))
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				release(t, g)
			}
		})
	}
}

// TestServersThatCannotForLong: the patience with them ends, with that of the caller
// at the latest.
func TestServersThatCannotForLong(t *testing.T) {
	b, n := lossy(t)
	b.opt.open = 100 * time.Millisecond
	const many = 1000
	fails := func(what string, ctx context.Context, want ...error) {
		t.Helper()
		req := request("k", time.Minute)
		_, err := b.Acquire(ctx, req)
		for _, w := range want {
			if !errors.Is(err, w) {
				t.Errorf("%s: want %v, got %v", what, w, err)
			}
		}
		if n.answer(nil, 0) == 0 {
			t.Errorf("%s: tried %d times", what, many)
		}
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	n.answer(rpctypes.ErrGRPCNoLeader, many)
	fails("no leader", t.Context(), backend.ErrUncertain, rpctypes.ErrNoLeader)
	b.opt.open = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	n.answer(rpctypes.ErrGRPCNoLeader, many)
	fails("no leader, and a caller without time", ctx, backend.ErrUncertain, context.DeadlineExceeded)
	n.answer(status.Error(codes.Unavailable, "the connection was lost"), 5)
	fails("connections that break", t.Context(), backend.ErrUncertain)
}

// TestKeyOfTheSameName puts a holder's key anew behind its back.
func TestKeyOfTheSameName(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, request("k", time.Minute))
	if err := errors.Join(second(b.client.Delete(t.Context(), g.key)), second(b.client.Put(t.Context(), g.key, ""))); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = b.client.Delete(context.Background(), g.key) }()
	if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew of a key that was deleted and made again: want ErrLost, got %v", err)
	}
}

// TestToldByTheWatch removes a held key once it is watched: until then the holder
// would find out by itself that it is gone.
func TestToldByTheWatch(t *testing.T) {
	addr := privately(t)
	b := newBackend(t, addr)
	lost := make(chan error, 10)
	req := request("k", time.Minute)
	req.OnLost = func(err error) { lost <- err }
	g := try(t, b, req)
	for end := time.Now().Add(soon); watchers(t, addr) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody watches the key")
		}
	}
	// by then the look that follows the watch has most likely been answered too
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := second(b.client.Delete(t.Context(), g.key)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("want ErrLost, got %v", err)
		}
	case <-time.After(soon):
		t.Error("the holder was not told")
	}
}

// watchers is how many watches the server has.
func watchers(t *testing.T, addr string) int {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "etcd_debugging_mvcc_watcher_total "); ok {
			n := 0
			if _, err := fmt.Sscan(v, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the server does not count its watches")
	return 0
}
