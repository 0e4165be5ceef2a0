package pglock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TestSecretProvesOnce: the secret of the attempt ahead proves the first push that
// has it, whose grant is not replaced by the next one. It proves none if it may have been
// known before the reply with its hash.
func TestSecretProvesOnce(t *testing.T) {
	const real, forged = "g o 8 3001000 3000000 6b ", "g o 9 9001000 3000000 6b "
	for name, c := range map[string]struct {
		beforeReply, afterReply []string
		token                   uint64
		proven                  bool
	}{
		"sent again":              {nil, []string{real + secretAhead, forged + secretAhead}, 8, true},
		"after a push without it": {nil, []string{forged, real + secretAhead}, 8, true},
		"not the secret":          {nil, []string{forged + hashOf(secretAhead)}, 9, false},
		"known before the reply":  {[]string{real + secretAhead}, []string{forged + secretAhead}, 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := scripted(t)
			a := b.newAttempt(requestOf("o"), waiting)
			a.beginRequest()
			for _, p := range c.beforeReply {
				b.receive(p)
			}
			a.schedule(reply{sent: time.Now(), ahead: hashOf(secretAhead)})
			for _, p := range c.afterReply {
				b.receive(p)
			}
			if p := <-a.pushed; p.token != c.token || p.proven != c.proven {
				t.Errorf("want token %d, proven: %v, got %d, %v", c.token, c.proven, p.token, p.proven)
			}
		})
	}
}

// TestStaleClock: a reply to a request that was sent before the listening connection was
// lost does not make the server clock known.
func TestStaleClock(t *testing.T) {
	b := scripted(t)
	a := b.newAttempt(requestOf("o"), waiting)
	a.beginRequest()
	b.pollNow()
	a.schedule(reply{sent: time.Now(), serverTime: 1000, ahead: hashOf(secretAhead)})
	b.receive("g o 8 3001000 3000000 6b " + secretAhead)
	if g := a.acceptPush(<-a.pushed); g != nil {
		t.Errorf("want the attempt to ask again, got the grant %d", g.token)
	}
}

// TestFirstBeforeTheReply: a notification that comes before the first reply cannot delay
// the next poll: any role can send it.
func TestFirstBeforeTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(t)
		a := b.newAttempt(requestOf("o"), waiting)
		a.beginRequest()
		b.receive("h o 9000000000000000 3600000000")
		begun := time.Now()
		a.schedule(reply{sent: begun, serverTime: 1000, holder: backend.Holder{Left: 10 * time.Second}})
		if <-a.timer.C; time.Since(begun) > 11*time.Second {
			t.Errorf("want a poll when the lease ends, got it after %v", time.Since(begun))
		}
	})
}
