package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/natslock"
)

func client(t testing.TB, url string, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func streams(t testing.TB, s *provision.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connect(t, s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Tokens rise if the bucket is deleted and created again, and a holder of the old one has lost its lock.
func TestDeletedBucket(t *testing.T) {
	s := provision.NewNATS(t, provision.NATS2, provision.Options{})
	js := streams(t, s)
	c := client(t, s.URL()+"?timeout=500ms", lock.WithTTL(3*time.Second))
	former, err := c.Mutex("x").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_locks"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mutex("y").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("without the bucket: %v", err)
	}
	next, err := client(t, s.URL()).Mutex("x").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, _ := former.Token()
	after, _ := next.Token()
	if after <= before {
		t.Errorf("token %d after %d", after, before)
	}
	<-former.Context().Done()
	if err := former.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the former holder: %v", err)
	}
}

// Servers before 2.11 are refused a bucket with replicas: their conditional writes are not safe after an election.
func TestReplicasOfOldServer(t *testing.T) {
	s := provision.NewNATS(t, provision.NATS29, provision.Options{})
	_, err := suite.Open(t.Context(), s.URL()+"?replicas=3")
	if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "replicas 3: want 1 on a server 2.9") {
		t.Errorf("want it refused, got %v", err)
	}
}

// New uses the connection of the caller, and leaves it open.
func TestNew(t *testing.T) {
	s := provision.NewNATS(t, provision.NATS2, provision.Options{})
	conn := connect(t, s.Addr())
	b, err := natslock.New(t.Context(), conn, "mine")
	if err != nil {
		t.Fatal(err)
	}
	c, err := lock.New(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mutex("x").TryLock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !conn.IsConnected() || conn.NumSubscriptions() > 1 { // that of replies
		t.Errorf("connected: %v, subscriptions: %d", conn.IsConnected(), conn.NumSubscriptions())
	}
}
