package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// gate holds transactions back from when it is closed until it is opened.
type gate struct {
	closed        atomic.Bool
	arrived, open chan struct{} // arrived: one for each transaction
	sent          atomic.Int32
	refuses       string // the servers refuse a transaction with this in it
}

func newGate() *gate { return &gate{arrived: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok && g.closed.Load() {
		g.sent.Add(1)
		for _, op := range txn.Success {
			if op.GetRequestTxn() != nil || len(txn.Success) == 1 {
				g.arrived <- struct{}{}
			}
		}
		<-g.open
		if g.refuses != "" && strings.Contains(txn.String(), g.refuses) {
			return rpctypes.ErrGRPCTooManyOps
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// attempts makes attempts for keys behind one that is on its way, and returns the tokens of those that were granted, by
// key.
func (g *gate) attempts(t *testing.T, b *Backend, keys []string, check func(key string, err error)) map[string]uint64 {
	t.Helper()
	if _, err := b.TryAcquire(t.Context(), request("earlier", time.Minute)); err != nil { // the session exists
		t.Fatal(err)
	}
	b.svc.batches = call.NewBatches(b.svc.life, 2, maxTogether, spacing, b.svc.send)
	g.closed.Store(true)
	var mu sync.Mutex
	tokens := map[string]uint64{}
	var all sync.WaitGroup
	acquire := func(key string) {
		all.Go(func() {
			grant, err := b.TryAcquire(t.Context(), request(key, time.Minute))
			if err != nil {
				check(key, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if tokens[key] != 0 {
				t.Errorf("key %q has two holders", key)
			}
			tokens[key] = grant.Token()
		})
	}
	acquire("first")
	<-g.arrived
	for _, key := range keys {
		acquire(key)
	}
	<-g.arrived // of one of them; the others wait for the first that returns
	close(g.open)
	all.Wait()
	return tokens
}

// TestTogether: attempts that are made at the same time share requests.
func TestTogether(t *testing.T) {
	g := newGate()
	b := intercepted(t, g.intercept)
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	tokens := g.attempts(t, b, keys, func(key string, err error) { t.Errorf("key %q: %v", key, err) })
	if len(tokens) != 1+len(keys) {
		t.Errorf("%d keys are held, want %d", len(tokens), 1+len(keys))
	}
	if n := int(g.sent.Load()); n > len(keys)/2 {
		t.Errorf("%d attempts were sent in %d requests", len(keys), n)
	}
}

// TestTogetherForAKey: of attempts for one key that are made at the same time one is granted.
func TestTogetherForAKey(t *testing.T) {
	g := newGate()
	b := intercepted(t, g.intercept)
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprint("k", i%4))
	}
	tokens := g.attempts(t, b, keys, func(key string, err error) {
		if !errors.Is(err, backend.ErrLocked) {
			t.Errorf("key %q: want a grant or ErrLocked, got %v", key, err)
		}
	})
	if len(tokens) != 5 {
		t.Errorf("want grants of 5 keys, got %v", tokens)
	}
}

// TestRefusedTogether: what the servers refuse for one of the transactions of a request fails that one.
func TestRefusedTogether(t *testing.T) {
	g := newGate()
	g.refuses = "/wrong/"
	b := intercepted(t, g.intercept)
	names := []string{"a", "wrong", "b", "c"}
	tokens := g.attempts(t, b, names, func(key string, err error) {
		if key != "wrong" || !errors.Is(err, rpctypes.ErrTooManyOps) || backend.OutcomeUnknown(err) {
			t.Errorf("key %q: %v", key, err)
		}
	})
	if len(tokens) != 4 || tokens["wrong"] != 0 {
		t.Errorf("want grants of all keys but one, got %v", tokens)
	}
}
