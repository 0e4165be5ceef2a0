package nats_test

import (
	"context"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/natslock"
)

func ping(t *testing.T, b backend.Backend, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return b.(backend.Pinger).Ping(ctx)
}

// TestSilentConnection makes the connections of a client of each kind silent.
func TestSilentConnection(t *testing.T) {
	s := provision.NewNATS(t, provision.NATS2, provision.Options{})
	p := provision.NewProxy(t, s.Addr())
	own, err := suite.Open(t.Context(), "nats://"+p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close(context.Background()) })
	conn := connect(t, "nats://"+p.Addr())
	of, err := natslock.New(t.Context(), conn, natslock.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = of.Close(context.Background()) })
	p.SilenceOpen()
	for name, b := range map[string]backend.Backend{"of the driver": own, "of the caller": of} {
		if ping(t, b, 50*time.Millisecond) == nil {
			t.Fatalf("a request on a silent connection %s: want an error", name)
		}
		if ping(t, b, 400*time.Millisecond) == nil {
			t.Errorf("after a request that ended at once: want the same connection %s, got an answer", name)
		}
	}
	if err := ping(t, own, time.Second); err != nil {
		t.Errorf("after a request without an answer: want another connection, got %v", err)
	}
	if !conn.IsConnected() || conn.Stats().Reconnects != 0 {
		t.Errorf("the connection of the caller: want it unchanged, got %v and %d reconnections",
			conn.Status(), conn.Stats().Reconnects)
	}
}
