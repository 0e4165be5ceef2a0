package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/interlock-go/lock/backend"
)

// TestManyAtOnce: the servers refuse requests while 5,000 wait to be applied, so a process does
// not send so many.
func TestManyAtOnce(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	intercept := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method == "/etcdserverpb.KV/Txn" {
			arrived <- struct{}{}
			<-goOn
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	b := intercepted(t, intercept)
	const attempts = 2 * maxAsking
	var all sync.WaitGroup
	for i := range attempts {
		all.Go(func() {
			if _, err := b.TryAcquire(t.Context(), request(fmt.Sprint(i), time.Minute)); err != nil {
				t.Errorf("one of %d attempts: want nil, got %v", attempts, err)
			}
		})
	}
	for range maxAsking {
		<-arrived
	}
	select {
	case <-arrived:
		t.Errorf("more than %d requests are sent at once", maxAsking)
		goOn <- struct{}{}
	case <-time.After(200 * time.Millisecond): // a request that is sent later is not noticed
	}
	go func() {
		for range arrived {
		}
	}()
	close(goOn)
	all.Wait()
	close(arrived)
}

// TestNoPlaceIsNotSent: an attempt that ends while it waits for a place was not sent.
func TestNoPlaceIsNotSent(t *testing.T) {
	b := newBackend(t, server(t))
	g, err := b.TryAcquire(t.Context(), request("other", time.Minute)) // the lease exists
	if err != nil {
		t.Fatal(err)
	}
	for range cap(b.svc.asking) {
		b.svc.asking <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req := request("k", time.Minute)
	for name, acquire := range map[string]func(context.Context, backend.Request) (backend.Grant, error){"TryAcquire": b.TryAcquire, "Acquire": b.Acquire} {
		if _, err := acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) || backend.OutcomeUnknown(err) {
			t.Errorf("%s: want the deadline and a known outcome, got %v", name, err)
		}
	}
	if _, known := b.Place(req.Owner); known {
		t.Error("the attempt stays known")
	}
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
	for range cap(b.svc.asking) {
		<-b.svc.asking
	}
}
