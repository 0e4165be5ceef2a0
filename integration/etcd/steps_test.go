package etcd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func rawRequest(key string, ttl time.Duration) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: ttl}
}

// behindProxy opens a backend behind a proxy.
func behindProxy(t *testing.T, s *provision.Server, query string) (backend.Backend, *provision.Proxy) {
	t.Helper()
	p := provision.NewProxy(t, s.Addr())
	b, err := suite.Open(t.Context(), "etcd://"+p.Addr()+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Heal()
		_ = b.Close(context.Background())
	})
	return b, p
}

// TestTrustIsCountedFromTheSend delays the network, when the lease is granted and when it
// is kept alive. Trust counts from before the request.
func TestTrustIsCountedFromTheSend(t *testing.T) {
	b, p := behindProxy(t, provision.NewEtcd(t, provision.Etcd37, provision.Options{}), "")
	const oneWay, ttl = 300 * time.Millisecond, time.Hour
	p.Delay(oneWay)
	counts := func(what string, g backend.Grant) {
		t.Helper()
		until := g.Until()
		if most := time.Now().Add(ttl - 2*oneWay); until.After(most) {
			t.Errorf("%s over a link of %v each way: trusted %v too long", what, oneWay, until.Sub(most))
		}
	}
	start := time.Now()
	g, err := b.TryAcquire(t.Context(), rawRequest("trust", ttl))
	if err != nil {
		t.Fatal(err)
	}
	// The request for the lease was the first of two.
	if most := start.Add(ttl); g.Until().After(most.Add(oneWay)) {
		t.Errorf("a new lease over a link of %v each way: trusted until %v after the call and its TTL", oneWay, g.Until().Sub(most))
	}
	first := g.Until()
	for g.Until().Equal(first) { // a fresh lease is not kept alive again
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
	}
	counts("a renewal", g)
	p.Delay(0)
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestUnansweredRequest loses the reply to a request to acquire. The request is sent again
// and answered, but the servers may still execute the first one: the release begins another
// epoch of the session, in which they refuse it.
func TestUnansweredRequest(t *testing.T) {
	s := provision.NewEtcd(t, provision.Etcd37, provision.Options{})
	b, p := behindProxy(t, s, "")
	version := int64(1)
	for _, how := range []string{"try", "wait"} {
		req := rawRequest("unanswered-"+how, time.Hour)
		dropped := p.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte(req.Owner)) })
		call := b.TryAcquire
		if how == "wait" {
			call = b.(backend.Waiter).Acquire
		}
		g, err := call(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		select {
		case <-dropped:
		default:
			t.Fatalf("%s: no reply was lost", how)
		}
		if err := g.Release(t.Context()); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		lease := b.(*etcdlock.Backend).Leases()[0]
		r, err := adminOf(t, s.Addr()).Get(t.Context(), fmt.Sprintf("lock/%%s/%016x", uint64(lease)))
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Kvs) != 1 || r.Kvs[0].Version < version+1 {
			t.Fatalf("%s: the marker of the session after an unanswered request: want it put again, got %v", how, r.Kvs)
		}
		version = r.Kvs[0].Version
	}
}

// TestMissedEvents releases a lock while the network of a waiter is cut, and compacts the
// events: a new watch does not receive them, so the waiter must read the queue.
func TestMissedEvents(t *testing.T) {
	s := provision.NewEtcd(t, provision.Etcd37, provision.Options{})
	admin := adminOf(t, s.Addr())
	holder, err := suite.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.Background())
	g, err := holder.TryAcquire(t.Context(), rawRequest("k", time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	b, p := behindProxy(t, s, "")
	type outcome struct {
		g   backend.Grant
		err error
	}
	waits, got := make(chan struct{}, 1), make(chan outcome, 1)
	req := rawRequest("k", time.Hour)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		g, err := b.(backend.Waiter).Acquire(t.Context(), req)
		got <- outcome{g, err}
	}()
	<-waits
	const watches = 3 // the markers of two sessions, and the queue
	if err := eventually(func() error {
		n, err := metric(t.Context(), s.Addr(), "etcd_debugging_mvcc_watcher_total")
		if err == nil && n < watches {
			err = fmt.Errorf("%.0f watches, want %d", n, watches)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := admin.Put(t.Context(), "other", "")
	if err == nil {
		_, err = admin.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	select {
	case o := <-got:
		if o.err != nil {
			t.Fatal(o.err)
		}
		if err := o.g.Release(t.Context()); err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the waiter was not granted")
	}
}

// TestSilenceIsALoss drops all packets: the driver reports the loss by its own clock.
func TestSilenceIsALoss(t *testing.T) {
	b, p := behindProxy(t, provision.NewEtcd(t, provision.Etcd37, provision.Options{}), "")
	lost := make(chan error, 1)
	req := rawRequest("silence", 2*time.Second)
	req.OnLost = func(err error) { lost <- err }
	if _, err := b.TryAcquire(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	p.Blackhole()
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("want ErrLost, got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the loss was not reported")
	}
}
