package pglock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TestAttemptIsUnregistered: an attempt is unregistered however its grant ends.
func TestAttemptIsUnregistered(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		ends   func(b *Backend, g *grant) bool
	}{
		"renewal of a lost grant": {answer{}, func(_ *Backend, g *grant) bool {
			return errors.Is(g.Renew(t.Context(), time.Minute), backend.ErrLost)
		}},
		"release that fails": {answer{failed: "57014"}, func(_ *Backend, g *grant) bool { return g.Release(t.Context()) != nil }},
		"notification of the loss": {answer{}, func(b *Backend, g *grant) bool {
			calls := make(chan struct{}, 2)
			g.a.req.OnLost = func(error) { calls <- struct{}{} }
			b.receive("l " + g.a.req.Owner)
			<-calls
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, req := scripted(t, c.answer), requestOf("o")
			req.OnLost = func(error) {}
			g := grantFor(b, req, time.Minute)
			if len(b.attempts) != 1 {
				t.Fatalf("want the holder registered, got %d attempts", len(b.attempts))
			}
			if !c.ends(b, g) {
				t.Error("the grant does not end that way")
			}
			if len(b.attempts) != 0 {
				t.Errorf("want no attempt registered, got %d", len(b.attempts))
			}
		})
	}
}

// TestRevokedWhileWaiting: if a grant is revoked before Acquire accepts it, Acquire
// asks again, once, and OnLost is not called. The reply may be the next grant, which
// Acquire must keep.
func TestRevokedWhileWaiting(t *testing.T) {
	var b *Backend
	revoke := func() { b.receive("l o") }
	refused := acquired("0", "7")
	late, again := acquired("1", "8"), acquired("1", "9")
	late.before, again.before = revoke, revoke
	inspected := func(owner string) answer {
		return answer{rows: [][]string{{"lock:k", "9", owner, "", "1000", "0", "{}", "{}"}}}
	}
	for name, c := range map[string]struct {
		pushed  []string
		answers []answer
	}{
		"pushed":                      {[]string{"g o 8 3001000 3000000 6b " + secretAhead, "l o"}, []answer{refused, acquired("1", "9"), inspected("p")}},
		"polled":                      {[]string{"g o 8 1001 3000000 6b " + secretAhead}, []answer{refused, late, acquired("1", "9"), inspected("p")}}, // the push has expired
		"pushed without a secret":     {[]string{"g o 8 3001000 3000000 6b"}, []answer{refused, acquired("1", "9"), inspected("p")}},
		"pushed with another secret":  {[]string{"g o 8 3001000 3000000 6b 5ec4e8"}, []answer{refused, acquired("1", "9"), inspected("p")}},
		"false revocations each time": {[]string{"g o 8 1001 3000000 6b"}, []answer{refused, late, again, inspected("o"), inspected("p")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b = scripted(t, c.answers...)
				b.listener.up = true
				req := requestOf("o")
				losses := make(chan error, 2)
				req.OnLost = func(err error) { losses <- err }
				req.OnWait = func(*backend.LockedError) {
					for _, p := range c.pushed {
						b.receive(p)
					}
				}
				g, err := b.Acquire(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if g.Token() != 9 || len(losses) != 0 {
					t.Errorf("want grant 9 and no loss, got %d and %d losses", g.Token(), len(losses))
				}
				revoke() // and another attempt holds the key
				synctest.Wait()
				if len(losses) != 1 {
					t.Errorf("after a revocation of grant 9: want one loss, got %d", len(losses))
				}
			})
		})
	}
}

// TestFailureAfterRevokedGrant: if a grant was revoked before Acquire accepted it, a request that
// fails after it leaves the outcome unknown: the attempt may hold the key.
func TestFailureAfterRevokedGrant(t *testing.T) {
	var b *Backend
	granted := acquired("1", "8")
	granted.before = func() { b.receive("l o") }
	b = scripted(t, granted, answer{failed: "42501"})
	b.listener.up = true
	if _, err := b.Acquire(t.Context(), requestOf("o")); !backend.OutcomeUnknown(err) {
		t.Errorf("want an unknown outcome, got %v", err)
	}
}

// TestTombstone: Abandon writes a tombstone unless each request of the attempt had a
// reply, and unregisters the attempt.
func TestTombstone(t *testing.T) {
	for name, c := range map[string]struct {
		answers []answer
		want    bool
	}{
		"each request had a reply": {[]answer{acquired("0", "7"), {}}, false},
		"no request was sent":      {[]answer{{}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := scripted(t, c.answers...)
			b.listener.up = true
			if len(c.answers) == 2 {
				ctx, cancel := context.WithCancel(t.Context())
				req := requestOf("o")
				req.OnWait = func(*backend.LockedError) { cancel() }
				if _, err := b.Acquire(ctx, req); !errors.Is(err, backend.ErrUncertain) {
					t.Fatalf("want ErrUncertain, got %v", err)
				}
			}
			if got := b.attempts["o"] == nil; got != c.want {
				t.Errorf("want a tombstone: %v, got %v", c.want, got)
			}
			if err := b.Abandon(t.Context(), requestOf("o")); err != nil {
				t.Error(err)
			}
			if len(b.attempts) != 0 {
				t.Errorf("want no attempt registered, got %d", len(b.attempts))
			}
		})
	}
}
