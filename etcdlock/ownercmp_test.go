package etcdlock

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestOwnerCmp(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("k", 5*time.Second)
	g := try(t, b, req)
	holds := func(name, owner string, token uint64) bool {
		r, err := b.Client().Txn(t.Context()).If(b.OwnerCmp(name, owner, token)).Then(clientv3.OpPut(t.Name()+"-data", "x")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r.Succeeded
	}
	if !holds("k", req.Owner, g.Token()) {
		t.Error("false for the holder")
	}
	if holds("k", req.Owner, g.Token()+1) || holds("k", req.Owner, 0) || holds("other", req.Owner, g.Token()) || holds("k", request("k", 0).Owner, g.Token()) {
		t.Error("true for another grant")
	}
	if _, err := b.Break(t.Context(), "k", ""); err != nil {
		t.Fatal(err)
	}
	if holds("k", req.Owner, g.Token()) {
		t.Error("true for a broken grant")
	}
	req = request("k", 5*time.Second)
	g = try(t, b, req)
	release(t, g)
	if holds("k", req.Owner, g.Token()) {
		t.Error("true for a released grant")
	}
}

// TestOwnerCmpBesideRelease is for the race detector.
func TestOwnerCmpBesideRelease(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("k", time.Minute)
	g := try(t, b, req)
	var wg sync.WaitGroup
	var stop atomic.Bool
	begun := make(chan struct{})
	wg.Go(func() {
		b.OwnerCmp("k", req.Owner, g.Token())
		close(begun)
		for !stop.Load() {
			b.OwnerCmp("k", req.Owner, g.Token())
		}
	})
	<-begun
	release(t, g)
	stop.Store(true)
	wg.Wait()
}
