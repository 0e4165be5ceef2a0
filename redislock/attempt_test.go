package redislock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// fabricated is an attempt without a server.
func fabricated(ttl time.Duration) *attempt {
	b := &Backend{attempts: map[string]*attempt{}}
	b.subs = newSubscriptions(b)
	r := request("k")
	r.TTL = ttl
	return b.newAttempt(r, true)
}

func heldReply(left time.Duration, value string, first int64, us int64) reply {
	return reply{status: no, us: us, sent: time.Now(), rest: []any{left.Milliseconds(), "7", value, first, int64(0)}}
}

// Every answer and every word of the holder's lease sets the next poll, whatever
// the server's clock says.
func TestNextPoll(t *testing.T) {
	const none = -time.Millisecond // no expiry
	ours := (&Backend{address: "p00000000000000aa"}).party(request("k").Owner)
	poll := func(a *attempt) time.Duration {
		t.Helper()
		start := time.Now()
		select {
		case <-a.timer.C:
		case <-time.After(1000 * time.Hour):
			t.Fatal("no poll")
		}
		return time.Since(start)
	}
	want := func(got, want time.Duration) {
		t.Helper()
		if got < want || got > want+3*time.Millisecond {
			t.Errorf("asks after %v, want %v", got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a := fabricated(10 * time.Second)
		a.held(heldReply(20*time.Second, ours, 1, 1000))
		want(poll(a), 20*time.Second)
		a.held(heldReply(20*time.Second, ours, 0, 1000))
		want(poll(a), 30*time.Second+50*time.Millisecond)
		// a claim may become a whole TTL
		a.held(heldReply(3*time.Second, ours, 0, 1000))
		want(poll(a), 15*time.Second+50*time.Millisecond)
		a = fabricated(time.Hour)
		a.held(heldReply(3*time.Second, ours, 0, 1000))
		want(poll(a), 45*time.Second+50*time.Millisecond)

		// the clock went back
		a = fabricated(time.Second)
		a.held(heldReply(2*time.Second, ours, 1, 1000))
		want(poll(a), 2*time.Second)
		a.held(heldReply(2*time.Second, ours, 1, 5))
		want(poll(a), 2*time.Second)
		a.heldFor(time.Second)
		want(poll(a), time.Second)

		// what is told after the request was sent, before and after its answer is handled
		a = fabricated(30 * time.Second)
		r := heldReply(20*time.Second, ours, 1, 1000)
		a.heldFor(4 * time.Second)
		time.Sleep(time.Second) // in the bubble
		a.heldFor(4 * time.Second)
		a.held(r)
		want(poll(a), 4*time.Second)
		a.held(heldReply(20*time.Second, ours, 1, 1000))
		a.heldFor(5 * time.Second)
		a.heldFor(25 * time.Second)
		want(poll(a), 25*time.Second)
		a.held(heldReply(20*time.Second, ours, 1, 1000))
		a.heldFor(time.Hour) // so much is not believed
		want(poll(a), 45*time.Second+50*time.Millisecond)
		a.again = true
		a.held(heldReply(20*time.Second, ours, 1, 1000))
		want(poll(a), 0)
		a.again = false

		// without an expiry, whoever holds
		for _, value := range []string{ours, "foreign"} {
			a := fabricated(10 * time.Second)
			for _, d := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
				a.held(heldReply(none, value, 1, 1000))
				want(poll(a), d*time.Millisecond)
			}
			a.held(heldReply(none, value, 0, 1000))
			want(poll(a), 5*time.Second)
		}
		a = fabricated(time.Second)
		a.held(reply{sent: time.Now(), rest: []any{int64(1) << 62, "7", "foreign", int64(1)}})
		want(poll(a), foreignPoll)
		a.held(reply{sent: time.Now(), rest: []any{int64(1) << 62, "7", ours, int64(1)}})
		if a.next.Before(time.Now().Add(maxTTL)) {
			t.Errorf("overflow: %v", a.next)
		}
		a.timer.Stop()
	})
}

// Until of a push is counted from the waiter's own last exchange, however late it
// is received, and not at all if that cannot be relied on.
func TestUntilOfPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		at := start.Add
		a := fabricated(10 * time.Second)
		p := push{token: 1, exp: 1e6 + 5e6, claim: claim, received: at(2 * time.Second)}
		if u := a.until(p); !u.IsZero() {
			t.Errorf("without an exchange: %v", u.Sub(start))
		}
		r := heldReply(20*time.Second, "foreign", 1, 1e6)
		a.held(r)
		for _, received := range []time.Duration{2 * time.Second, 4900 * time.Millisecond} {
			p.received = at(received)
			if u := a.until(p); u != at(5*time.Second-received/2000) {
				t.Errorf("received after %v: until %v", received, u.Sub(start))
			}
		}
		// the server's clock went forward by a second
		p.received = at(time.Second)
		if u := a.until(p); !u.IsZero() {
			t.Errorf("stepped: until %v", u.Sub(start))
		}
		if g := a.take(p); g != nil {
			t.Error("a push that cannot be dated was taken")
		}
		// an answer to what was asked before the connection broke is no good
		p.received = at(2 * time.Second)
		ch := a.b.subs.use("c", a)
		time.Sleep(time.Second) // in the bubble
		a.b.pollNow("c")
		for _, late := range []bool{true, false} {
			if u := a.until(p); !u.IsZero() {
				t.Errorf("stale: until %v", u.Sub(start))
			}
			if !late {
				r = heldReply(20*time.Second, "foreign", 1, 2e6)
			}
			a.held(r)
		}
		if u := a.until(p); u.IsZero() {
			t.Error("still stale")
		}
		ch.unuse(a)
		a.timer.Stop()
	})
}

// Until of an answer is counted from before the request.
func TestUntilOfAnswer(t *testing.T) {
	sent := time.Now().Add(-2 * time.Second)
	for left, want := range map[int64]time.Duration{4000: 4 * time.Second, 60000: 10 * time.Second} {
		g := fabricated(10 * time.Second).grant(reply{status: yes, sent: sent, rest: []any{left, "7", int64(0)}})
		if g.Until() != sent.Add(want) {
			t.Errorf("%d ms left: %v after the request", left, g.Until().Sub(sent))
		}
	}
	px := newProxy(t, server(t))
	b := openURL(t, "redis://"+px.addr+"?prefix="+newPrefix())
	g := take(t, b, request("k"))
	var arrived time.Time
	px.set(onScript(renewScript, func() action {
		arrived = time.Now()
		time.Sleep(5 * time.Millisecond) // a slow network
		return pass
	}))
	must(t, g.Renew(t.Context(), time.Minute))
	px.set(nil)
	if late := g.Until().Sub(arrived.Add(time.Minute)); late > 0 {
		t.Errorf("counted from %v after the request arrived", late)
	}
	must(t, g.Release(t.Context()))
}

// Who waits asks again when its channel is back.
func TestConfirmedAgainPolls(t *testing.T) {
	a := fabricated(10 * time.Second)
	s := a.b.subs
	c := s.use("c", a)
	c.on, c.before = &listener{s: s}, true
	s.confirmed(c.on, "c")
	select {
	case <-a.timer.C:
	case <-time.After(10 * time.Second):
		t.Error("no poll")
	}
	if got := c.open(context.Background()); got != c.on || !a.again || !a.stale {
		t.Errorf("listener %p, again %v, stale %v", got, a.again, a.stale)
	}
	delete(s.channels, "c")
}

func TestCapabilityBounds(t *testing.T) {
	if c := newBackend(t, newPrefix()).Capabilities(); c.MaxTTL != maxTTL || millis(maxTTL) <= 0 || backend.LossTTL != c.Loss {
		t.Errorf("%+v", c)
	}
}
