package pglock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TestDroppedWithoutReply: a request that passes an expired lease on, and has no reply, may have dropped the other waiters
// of this process from the queue. They ask when its attempt has the next reply, and not when the next lease ends.
func TestDroppedWithoutReply(t *testing.T) {
	late := func(a answer) answer {
		a.before = func() { time.Sleep(6 * time.Second) } // the timeout is 5 s
		return a
	}
	held, again := acquired("0", "7"), acquired("2", "0")
	for name, replies := range map[string][]answer{
		"granted": {late(acquired("1", "8")), acquired("1", "8")},
		"held":    {late(acquired("0", "8")), acquired("0", "8")},
		"twice":   {late(acquired("0", "8")), late(acquired("0", "8")), acquired("0", "8")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := append([]answer{held, held, again}, replies...)
				b := scripted(t, append(script, acquired("1", "9"), acquired("1", "10"))...)
				b.listener.up = true
				begun := time.Now()
				acquire := func(owner string) <-chan time.Duration {
					got := make(chan time.Duration, 1)
					go func() {
						if _, err := b.Acquire(t.Context(), requestOf(owner)); err != nil {
							t.Error(err)
						}
						got <- time.Since(begun)
					}()
					synctest.Wait() // until it waits
					return got
				}
				first, second := acquire("first"), acquire("second")
				// The lease that both know of ends after a minute. Then the first one asks.
				if at := <-second; at > 80*time.Second {
					t.Errorf("want the second waiter to ask at once after the reply, it asked after %v", at)
				}
				<-first
			})
		})
	}
}

// TestInLineBeforeOnWait: a waiter is in the line of its process before the caller learns that it waits.
func TestInLineBeforeOnWait(t *testing.T) {
	b := scripted(t, acquired("0", "7"))
	b.listener.up = true
	ctx, cancel := context.WithCancel(t.Context())
	req, waiters := requestOf("first"), 0
	req.OnWait = func(*backend.LockedError) {
		b.mu.Lock()
		defer b.mu.Unlock()
		waiters = len(b.lines[req.Key].waiters)
		cancel()
	}
	if _, err := b.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		t.Errorf("want context.Canceled, got %v", err)
	}
	if waiters != 1 {
		t.Errorf("want one waiter in the line, got %d", waiters)
	}
}

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
