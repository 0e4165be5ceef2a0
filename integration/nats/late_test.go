package nats_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/natslock"
)

// A request that failed because there was no connection is not sent when there is one again, although the
// connection of the caller has the buffer of the client library for that.
func TestNoLateSends(t *testing.T) {
	s := provision.NewNATS(t, provision.NATS2, counted(t))
	p := provision.NewProxy(t, s.Addr())
	conn := connect(t, "nats://"+p.Addr())
	b, err := natslock.New(t.Context(), conn, natslock.DefaultBucket, natslock.WithTimeout(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	count := counter(s)
	sent := func() int64 {
		t.Helper()
		n, err := count(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	p.Cut()
	for conn.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	for range 10 {
		_, err := b.TryAcquire(t.Context(), backend.Request{Key: "x", Owner: "late", TTL: time.Minute})
		if err == nil || errors.Is(err, lock.ErrLocked) || backend.OutcomeUnknown(err) {
			t.Fatalf("without a connection: want an error of a request that was not executed, got %v", err)
		}
	}
	before := sent()
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	for !conn.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	if err := conn.FlushTimeout(5 * time.Second); err != nil { // what the library has kept comes before
		t.Fatal(err)
	}
	if n := sent() - before; n != 0 {
		t.Errorf("%d messages were sent late", n)
	}
}
