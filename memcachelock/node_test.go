package memcachelock

import (
	"context"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
)

// When all connections for other requests are in use, a renewal gets one, and another request is not sent.
func TestConnectionsForHolders(t *testing.T) {
	client := memcache.New("127.0.0.1:1")
	client.Timeout = 10 * time.Millisecond
	n := newNode(client, 16)
	var ends []func()
	begin := func(held bool) error {
		end, err := n.begin(t.Context(), held)
		if err == nil {
			ends = append(ends, end)
		}
		return err
	}
	for range 12 {
		if err := begin(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin(false); err == nil || backend.OutcomeUnknown(err) {
		t.Errorf("another request: want an error of one that was not executed, got %v", err)
	}
	for range 4 {
		if err := begin(true); err != nil {
			t.Errorf("a renewal: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.begin(ctx, true); err == nil || backend.OutcomeUnknown(err) {
		t.Errorf("more renewals than connections: want an error of one that was not executed, got %v", err)
	}
	for _, end := range ends {
		end()
	}
	if len(n.any)+len(n.held) != 0 {
		t.Error("connections are in use for ever")
	}
}
