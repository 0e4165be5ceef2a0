package etcdlock

import (
	"context"
	"errors"
	"slices"
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

// network loses the transactions of a client, or their replies.
type network struct {
	mu   sync.Mutex
	lose string         // "", "request", "request once" or "reply"
	errs []error        // replies to the next transactions, which are not executed
	last []func() error // execute the requests that were lost
}

func (n *network) set(lose string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = lose
}

// answer makes err the reply to the next transactions. It returns the number of earlier
// errors that were not used.
func (n *network) answer(err error, times int) (left int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left, n.errs = len(n.errs), slices.Repeat([]error{err}, times)
	return left
}

func (n *network) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	n.mu.Lock()
	lose, txn := n.lose, method == "/etcdserverpb.KV/Txn"
	if !txn {
		lose = ""
	}
	if lose == "" && txn && len(n.errs) > 0 {
		err := n.errs[0]
		n.errs = n.errs[1:]
		n.mu.Unlock()
		return err
	}
	once := lose == "request once"
	if lose == "request" || once {
		n.last = append(n.last, func() error {
			var r etcdserverpb.TxnResponse
			return invoke(context.WithoutCancel(ctx), method, req, &r, cc, opts...)
		})
	}
	if once {
		n.lose = ""
	}
	n.mu.Unlock()
	if lose == "reply" || lose == "" {
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil || lose == "" {
			return err
		}
	}
	return status.Error(codes.Unavailable, "the connection was lost")
}

// late executes the requests that were lost.
func (n *network) late() (err error) {
	n.mu.Lock()
	last := n.last
	n.last = nil
	n.mu.Unlock()
	for _, f := range last {
		err = errors.Join(err, f())
	}
	return err
}

func lossy(t *testing.T) (*Backend, *network) {
	t.Helper()
	n := &network{}
	b := intercepted(t, n.intercept)
	t.Cleanup(func() { n.set("") }) // before b is closed
	return b, n
}

// intercepted returns a backend whose requests go through intercept.
func intercepted(t *testing.T, intercept grpc.UnaryClientInterceptor) *Backend {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server(t)}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(intercept)},
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
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// TestUnavailableServers answers as in an election and as in a restart, which take
// longer than a new connection.
func TestUnavailableServers(t *testing.T) {
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

// TestUnavailableForLong checks how long a request to acquire is sent again: up to the
// limit of the driver and the deadline of the caller.
func TestUnavailableForLong(t *testing.T) {
	b, n := lossy(t)
	b.svc.opt.openTimeout = 100 * time.Millisecond
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
			t.Errorf("%s: sent %d times", what, many)
		}
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	n.answer(rpctypes.ErrGRPCNoLeader, many)
	fails("no leader", t.Context(), backend.ErrUncertain, rpctypes.ErrNoLeader)
	b.svc.opt.openTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	n.answer(rpctypes.ErrGRPCNoLeader, many)
	fails("no leader, and a short deadline of the caller", ctx, backend.ErrUncertain, context.DeadlineExceeded)
	n.answer(status.Error(codes.Unavailable, "the connection was lost"), 5)
	fails("broken connections", t.Context(), backend.ErrUncertain)
}
