package etcdlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// TestLateRequest executes a request to acquire after its attempt was abandoned.
func TestLateRequest(t *testing.T) {
	b := newBackend(t, server(t))
	for _, how := range []string{"try", "enqueue", "try shared", "enqueue shared"} {
		req := request(how, 5*time.Second)
		if strings.HasSuffix(how, "shared") {
			req.Share = backend.Share{Weight: 1, Capacity: 2}
		}
		s, err := b.session(t.Context(), req.TTL)
		if err != nil {
			t.Fatal(err)
		}
		a := b.newAttempt(req)
		a.begin(s)
		a.unanswered.Store(true)
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		late, users := b.newAttempt(req), usersOf(s)
		switch how {
		case "try":
			_, err = late.try(t.Context(), s)
		case "try shared":
			_, err = late.tryShared(t.Context(), s, 0)
		default:
			_, err = late.enqueue(t.Context(), s, req.Share.Exclusive())
		}
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: want ErrInvalid, got %v", how, err)
		}
		if i, err := b.Inspect(t.Context(), req.Key); err != nil || i.Holder != nil {
			t.Errorf("%s: want a free key, got %+v, %v", how, i, err)
		}
		if registered(b, req) || usersOf(s) != users {
			t.Errorf("%s: the refused attempt stays registered", how)
		}
		s.leave()

		// Without the lease the servers refuse the request themselves.
		req = request(how, 5*time.Second)
		a = b.newAttempt(req)
		a.begin(s)
		a.unanswered.Store(true)
		if _, err := b.client.Revoke(t.Context(), s.id); err != nil {
			t.Fatal(err)
		}
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Errorf("%s: Abandon without a lease: %v", how, err)
		}
	}
}

// TestLateRequestAfterALoss executes a request to acquire that was sent again after the
// grant was lost.
func TestLateRequestAfterALoss(t *testing.T) {
	b, n := lossy(t)
	holder := try(t, b, request("other", time.Minute)) // so that the session is not idle
	for _, found := range []string{"by the watch", "by Renew"} {
		req, lost := losable("k", time.Minute)
		if found == "by Renew" {
			req.OnLost = nil
		}
		g := try(t, b, req)
		g.a.unanswered.Store(true)
		n.set("request")
		if _, err := b.client.Txn(t.Context()).If(
			clientv3.Compare(clientv3.CreateRevision(g.key), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(b.tombstone(g.s.id, req.Owner)), "=", 0),
		).Then(g.a.put(g.s, nil)).Commit(); err == nil {
			t.Fatal("the request was not lost")
		}
		n.set("")
		if err := second(b.Break(t.Context(), "k", "")); err != nil {
			t.Fatal(err)
		}
		var err error
		if found == "by Renew" {
			err = g.Renew(t.Context(), time.Minute)
		} else {
			err = <-lost
		}
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: want ErrLost, got %v", found, err)
		}
		eventually(t, found+": the attempt stays registered", func() bool { return !registered(b, req) })
		if done, err := n.late(); err != nil || done {
			t.Errorf("%s: a request that the servers execute after the loss: want it refused, got %v, %v", found, done, err)
		}
		if !free(t, b, "k")() {
			t.Fatalf("%s: the key has no holder and is not free", found)
		}
	}
	release(t, holder)
}

func registered(b *Backend, req backend.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.attempts[req.Owner] != nil
}

func usersOf(s *session) int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.users
}

// TestKnownOutcome checks which errors say that a request was certainly not executed.
func TestKnownOutcome(t *testing.T) {
	b, n := lossy(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for how, acquire := range map[string]func(context.Context, backend.Request) (backend.Grant, error){"try": b.TryAcquire, "wait": b.Acquire} {
		n.answer(rpctypes.ErrGRPCNoSpace, 1)
		req := request("k", time.Minute)
		if _, err := acquire(t.Context(), req); err == nil || backend.OutcomeUnknown(err) {
			t.Errorf("%s, refused by the server: want an error with a known outcome, got %v", how, err)
		}
		if registered(b, req) {
			t.Errorf("%s, refused by the server: the attempt stays registered", how)
		}
		if _, err := acquire(ended, request("k", time.Minute)); !errors.Is(err, context.Canceled) || backend.OutcomeUnknown(err) {
			t.Errorf("%s with a context that has ended: want context.Canceled with a known outcome, got %v", how, err)
		}
		n.set("request")
		req = request("k", time.Minute)
		if _, err := acquire(t.Context(), req); !backend.OutcomeUnknown(err) {
			t.Errorf("%s without an answer: want an unknown outcome, got %v", how, err)
		}
		n.set("")
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
}
