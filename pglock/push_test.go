package pglock

import (
	"testing"
	"time"
)

// TestUntilOfPush counts a grant that was pushed by the clock pair of the last answer,
// and never for longer than the claim from its receipt on.
func TestUntilOfPush(t *testing.T) {
	const us = 1_000_000_000 // the server's clock at the last answer
	sent := time.Now().Add(-time.Minute)
	for name, c := range map[string]struct {
		exp      int64         // on the server's clock
		received time.Duration // after the last question
		stale    bool
		none     bool // nothing is known
		want     time.Duration
	}{
		"at once":                        {exp: us + 3_000_000, want: 3 * time.Second},
		"late":                           {exp: us + 13_000_000, received: 12 * time.Second, want: 13*time.Second - 6*time.Millisecond},
		"after its end":                  {exp: us + 13_000_000, received: 15 * time.Second, want: 13*time.Second - 7500*time.Microsecond},
		"the server's clock was stepped": {exp: us + 3_600_000_000, received: time.Second, want: 4 * time.Second},
		"another server may answer":      {exp: us + 3_000_000, stale: true, none: true},
	} {
		a := &attempt{sent: sent, us: us, stale: c.stale}
		got := a.until(push{exp: c.exp, claim: claim, received: sent.Add(c.received)})
		if c.none != got.IsZero() || !c.none && got.Sub(sent) != c.want {
			t.Errorf("%s: until %v after the question, want %v", name, got.Sub(sent), c.want)
		}
	}
	if until := (&attempt{}).until(push{exp: us, claim: claim, received: sent}); !until.IsZero() {
		t.Errorf("without an answer: until %v", until)
	}
}
