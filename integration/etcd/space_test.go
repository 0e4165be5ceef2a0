package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// TestSpaceQuota fills the database to its quota. The servers then refuse to put keys and
// to grant leases. They keep leases alive and delete keys as before.
func TestSpaceQuota(t *testing.T) {
	t.Parallel()
	for _, flavour := range provision.EtcdFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			s := provision.NewEtcd(t, flavour, provision.Options{Args: []string{"--quota-backend-bytes", "2097152"}})
			testSpaceQuota(t, s)
		})
	}
}

func testSpaceQuota(t *testing.T, s *provision.Server) {
	const ttl = 5 * time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeLimit)
	defer cancel()
	adm := adminOf(t, s.Addr())
	b, err := suite.Open(ctx, s.URL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := lock.New(b, lock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })

	held, err := c.Mutex("k").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	raw := rawRequest("raw", ttl)
	g, err := b.TryAcquire(ctx, raw)
	if err != nil {
		t.Fatal(err)
	}
	next, waits := waitFor(ctx, b, "k", ttl)
	<-waits
	// a holder with an unanswered request, and a waiter for its lock
	faulty, p := behindProxy(t, s, "")
	req := rawRequest("unanswered", ttl)
	dropped := p.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte(req.Owner)) })
	unanswered, err := faulty.TryAcquire(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-dropped:
	default:
		t.Fatal("no reply was lost")
	}
	after, waits := waitFor(ctx, b, "unanswered", ttl)
	<-waits

	fill(ctx, t, adm)
	for _, ttl := range []time.Duration{ttl, 7 * time.Minute} { // with the existing lease, and with a new one
		for name, call := range map[string]func(lock.Mutex) (*lock.Lease, error){
			"Lock":    func(m lock.Mutex) (*lock.Lease, error) { return m.Lock(ctx) },
			"TryLock": func(m lock.Mutex) (*lock.Lease, error) { return m.TryLock(ctx) },
		} {
			l, err := call(c.Mutex("other", lock.WithTTL(ttl)))
			switch {
			case err == nil:
				t.Errorf("%s with TTL %v: granted without space: %v", name, ttl, l.Unlock(ctx))
			case !strings.Contains(err.Error(), "space exceeded"), errors.Is(err, context.DeadlineExceeded),
				errors.Is(err, lock.ErrUncertain), errors.Is(err, lock.ErrLocked):
				t.Errorf("%s with TTL %v: want an error at once that names the cause, got %v", name, ttl, err)
			}
		}
	}
	for until := g.Until(); !g.Until().After(until); { // a fresh lease is not kept alive again
		if err := g.Renew(ctx, ttl); err != nil {
			t.Fatalf("renew: %v", err)
		}
	}
	if err := g.Release(ctx); err != nil {
		t.Errorf("release: %v", err)
	}
	select {
	case <-next:
		t.Fatal("granted while the key is held")
	case <-after:
		t.Fatal("granted while the key is held")
	default:
	}
	before, _ := held.Token()
	if err := held.Unlock(ctx); err != nil {
		t.Errorf("unlock: %v", err)
	}
	second := granted(t, "the waiter", next)
	if second.Token() <= before {
		t.Errorf("token %d after %d", second.Token(), before)
	}
	if err := unanswered.Release(ctx); err != nil {
		t.Errorf("release of the holder with an unanswered request: %v", err)
	}
	third := granted(t, "the waiter for that", after)
	for _, g := range []backend.Grant{second, third} {
		if err := g.Release(ctx); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if left := keys(ctx, t, adm); len(left) > 0 {
		t.Errorf("left without space: %q", left)
	}

	makeSpace(ctx, t, adm, s.Addr())
	l, err := c.Mutex("k").Lock(ctx)
	if err != nil {
		t.Fatalf("with space again: %v", err)
	}
	if token, _ := l.Token(); token <= second.Token() {
		t.Errorf("token %d after %d", token, second.Token())
	}
	if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
	// The unanswered request may still be executed: its session begins another epoch.
	marker := fmt.Sprintf("lock/%%s/%016x", uint64(faulty.(*etcdlock.Backend).Leases()[0]))
	if err := eventually(func() error {
		r, err := adm.Get(ctx, marker)
		if err == nil && (len(r.Kvs) != 1 || r.Kvs[0].Version < 2) {
			err = fmt.Errorf("the marker of a session with an unanswered request: %v, want it put again", r.Kvs)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// waitFor acquires a key in the background. It closes waits when it is in the queue.
func waitFor(ctx context.Context, b backend.Backend, key string, ttl time.Duration) (<-chan backend.Grant, <-chan struct{}) {
	got, waits := make(chan backend.Grant, 1), make(chan struct{})
	req := rawRequest(key, ttl)
	req.OnWait = func(*backend.LockedError) { close(waits) }
	go func() {
		defer close(got)
		if g, err := b.(backend.Waiter).Acquire(ctx, req); err == nil {
			got <- g
		}
	}()
	return got, waits
}

func granted(t *testing.T, waiter string, got <-chan backend.Grant) backend.Grant {
	t.Helper()
	select {
	case g := <-got:
		if g != nil {
			return g
		}
		t.Fatalf("%s was not granted", waiter)
	case <-time.After(timeLimit):
		t.Fatalf("%s was not granted within %v", waiter, timeLimit)
	}
	return nil
}

func fill(ctx context.Context, t *testing.T, adm *clientv3.Client) {
	t.Helper()
	for err := error(nil); !errors.Is(err, rpctypes.ErrNoSpace); {
		if err != nil {
			t.Fatal(err)
		}
		_, err = adm.Put(ctx, "filler", strings.Repeat("x", 128<<10))
	}
	if r, err := adm.AlarmList(ctx); err != nil || len(r.Alarms) == 0 {
		t.Fatalf("no alarm: %v, %v", r, err)
	}
}

// makeSpace ends the alarm as the manual of etcd describes.
func makeSpace(ctx context.Context, t *testing.T, adm *clientv3.Client, addr string) {
	t.Helper()
	d, err := adm.Delete(ctx, "filler")
	if err == nil {
		_, err = adm.Compact(ctx, d.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err == nil {
		_, err = adm.Defragment(ctx, addr)
	}
	if err == nil {
		_, err = adm.AlarmDisarm(ctx, &clientv3.AlarmMember{}) // all
	}
	if err != nil {
		t.Fatal(err)
	}
}

// keys returns all keys of the servers but the filler and the markers of sessions.
func keys(ctx context.Context, t *testing.T, adm *clientv3.Client) (all []string) {
	t.Helper()
	r, err := adm.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		if k := string(kv.Key); k != "filler" && !strings.Contains(k, "/%s/") {
			all = append(all, k)
		}
	}
	return all
}
