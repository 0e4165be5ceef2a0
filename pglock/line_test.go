package pglock

import (
	"testing"
	"time"
)

// TestUntilOfPush: a pushed grant is trusted by the server clock of the last reply, and
// for no longer than the provisional TTL from its receipt.
func TestUntilOfPush(t *testing.T) {
	const at = 1_000_000_000 // server time of the last reply
	sent := time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		expires  int64         // server time
		received time.Duration // after the last request
		stale    bool
		unknown  bool
		want     time.Duration // after the last request
	}{
		"received at once":          {expires: at + 3_000_000, want: 3 * time.Second},
		"received late":             {expires: at + 13_000_000, received: 12 * time.Second, want: 13*time.Second - 6*time.Millisecond},
		"received after its end":    {expires: at + 13_000_000, received: 15 * time.Second, want: 13*time.Second - 7500*time.Microsecond},
		"server clock was set":      {expires: at + 3_600_000_000, received: time.Second, want: 4 * time.Second},
		"another server may answer": {expires: at + 3_000_000, stale: true, unknown: true},
	} {
		clock := serverClock{sent: sent, at: at, stale: c.stale}
		got := clock.until(push{expires: c.expires, ttl: provisionalTTL, received: sent.Add(c.received)})
		if c.unknown != got.IsZero() || !c.unknown && got.Sub(sent) != c.want {
			t.Errorf("%s: want it trusted until %v after the request, got %v", name, c.want, got.Sub(sent))
		}
	}
	if until := (serverClock{}).until(push{expires: at, ttl: provisionalTTL, received: sent}); !until.IsZero() {
		t.Errorf("without a reply: want no trust, got until %v", until)
	}
}
