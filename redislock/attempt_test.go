package redislock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// fabricated is an attempt without a server.
func fabricated(ttl time.Duration) *attempt {
	b := &Backend{srv: server.New(nil), attempts: map[string]*attempt{}}
	b.subs = newSubscriptions(b)
	r := request("k")
	r.TTL = ttl
	return b.newAttempt(r, waiting)
}

// held handles a reply as a poll does.
func held(a *attempt, r protocol.Reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock.observe(r)
	a.polls.replied(r, a.req.TTL)
}

func heldReply(left time.Duration, value string, first int64, us int64) protocol.Reply {
	return protocol.Reply{Status: protocol.No, US: us, Sent: time.Now(), Rest: []any{left.Milliseconds(), "7", value, first, int64(0)}}
}

// Every reply and every notification of the holder's lease sets the next poll, whatever
// the server's clock shows.
func TestNextPoll(t *testing.T) {
	const none = -time.Millisecond // no expiry
	ours := (protocol.Process{Address: "p00000000000000aa"}).OwnerAddress(request("k").Owner)
	poll := func(a *attempt) time.Duration {
		t.Helper()
		start := time.Now()
		select {
		case <-a.polls.timer.C:
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
		held(a, heldReply(20*time.Second, ours, 1, 1000))
		want(poll(a), 20*time.Second)
		held(a, heldReply(20*time.Second, ours, 0, 1000))
		want(poll(a), 30*time.Second+50*time.Millisecond)
		// a provisional lease may become a whole TTL
		held(a, heldReply(3*time.Second, ours, 0, 1000))
		want(poll(a), 15*time.Second+50*time.Millisecond)
		a = fabricated(time.Hour)
		held(a, heldReply(3*time.Second, ours, 0, 1000))
		want(poll(a), 45*time.Second+50*time.Millisecond)

		// the clock went back
		a = fabricated(time.Second)
		held(a, heldReply(2*time.Second, ours, 1, 1000))
		want(poll(a), 2*time.Second)
		held(a, heldReply(2*time.Second, ours, 1, 5))
		want(poll(a), 2*time.Second)
		a.polls.leaseChanged(time.Second)
		want(poll(a), time.Second)

		// a notification after the request was sent, before and after its reply is handled
		a = fabricated(30 * time.Second)
		r := heldReply(20*time.Second, ours, 1, 1000)
		a.polls.leaseChanged(4 * time.Second)
		time.Sleep(time.Second) // in the bubble
		a.polls.leaseChanged(4 * time.Second)
		held(a, r)
		want(poll(a), 4*time.Second)
		held(a, heldReply(20*time.Second, ours, 1, 1000))
		a.polls.leaseChanged(5 * time.Second)
		a.polls.leaseChanged(25 * time.Second)
		want(poll(a), 25*time.Second)
		held(a, heldReply(20*time.Second, ours, 1, 1000))
		a.polls.leaseChanged(time.Hour) // capped by the bound
		want(poll(a), 45*time.Second+50*time.Millisecond)
		a.polls.repeat = true
		held(a, heldReply(20*time.Second, ours, 1, 1000))
		want(poll(a), 0)
		a.polls.repeat = false

		// without an expiry, for any holder
		for _, value := range []string{ours, "foreign"} {
			a := fabricated(10 * time.Second)
			for _, d := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
				held(a, heldReply(none, value, 1, 1000))
				want(poll(a), d*time.Millisecond)
			}
			held(a, heldReply(none, value, 0, 1000))
			want(poll(a), 5*time.Second)
		}
		a = fabricated(time.Second)
		held(a, protocol.Reply{Sent: time.Now(), Rest: []any{int64(1) << 62, "7", "foreign", int64(1)}})
		want(poll(a), protocol.ForeignPoll)
		held(a, protocol.Reply{Sent: time.Now(), Rest: []any{int64(1) << 62, "7", ours, int64(1)}})
		if a.polls.next.Before(time.Now().Add(protocol.MaxTTL)) {
			t.Errorf("overflow: %v", a.polls.next)
		}
		a.polls.timer.Stop()
	})
}

// Until of a pushed grant is counted from the last reply, however late the grant is
// received. It is zero if that reply is not usable.
func TestUntilOfPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		at := start.Add
		a := fabricated(10 * time.Second)
		p := pushedGrant{protocol.Grant{Token: 1, Expiry: 1e6 + 5e6, TTL: protocol.ProvisionalTTL}, at(2 * time.Second)}
		if u := a.clock.until(p); !u.IsZero() {
			t.Errorf("without an exchange: %v", u.Sub(start))
		}
		r := heldReply(20*time.Second, "foreign", 1, 1e6)
		held(a, r)
		for _, received := range []time.Duration{2 * time.Second, 4900 * time.Millisecond} {
			p.received = at(received)
			if u := a.clock.until(p); u != at(5*time.Second-received/2000) {
				t.Errorf("received after %v: until %v", received, u.Sub(start))
			}
		}
		// the server's clock went forward by a second
		p.received = at(time.Second)
		if u := a.clock.until(p); !u.IsZero() {
			t.Errorf("stepped: until %v", u.Sub(start))
		}
		if g := a.acceptPush(p); g != nil {
			t.Error("a push that cannot be dated was taken")
		}
		// an answer to what was asked before the connection broke is no good
		p.received = at(2 * time.Second)
		ch := a.b.subs.use("c", a)
		time.Sleep(time.Second) // in the bubble
		a.b.subs.pollNow("c")
		for _, late := range []bool{true, false} {
			if u := a.clock.until(p); !u.IsZero() {
				t.Errorf("stale: until %v", u.Sub(start))
			}
			if !late {
				r = heldReply(20*time.Second, "foreign", 1, 2e6)
			}
			held(a, r)
		}
		if u := a.clock.until(p); u.IsZero() {
			t.Error("still stale")
		}
		ch.unuse(a)
		a.polls.timer.Stop()
	})
}

// Until of a reply is counted from before the request.
func TestUntilOfAnswer(t *testing.T) {
	sent := time.Now().Add(-2 * time.Second)
	for left, want := range map[int64]time.Duration{4000: 4 * time.Second, 60000: 10 * time.Second} {
		g := fabricated(10 * time.Second).grant(protocol.Reply{Status: protocol.Yes, Sent: sent, Rest: []any{left, "7", int64(0)}})
		if g.Until() != sent.Add(want) {
			t.Errorf("%d ms left: %v after the request", left, g.Until().Sub(sent))
		}
	}
	px := newProxy(t, sharedServer(t))
	b := openURL(t, "redis://"+px.Addr+"?prefix="+newPrefix())
	g := take(t, b, request("k"))
	var arrived time.Time
	px.Set(onScript(protocol.Renew, func() action {
		arrived = time.Now()
		time.Sleep(5 * time.Millisecond) // a slow network
		return pass
	}))
	must(t, g.Renew(t.Context(), time.Minute))
	px.Set(nil)
	if late := g.Until().Sub(arrived.Add(time.Minute)); late > 0 {
		t.Errorf("counted from %v after the request arrived", late)
	}
	must(t, g.Release(t.Context()))
}

// A waiter polls when its channel is subscribed again.
func TestConfirmedAgainPolls(t *testing.T) {
	a := fabricated(10 * time.Second)
	s := a.b.subs
	c := s.use("c", a)
	c.on, c.wasLive = &listener{s: s}, true
	s.confirmed(c.on, "c")
	select {
	case <-a.polls.timer.C:
	case <-time.After(10 * time.Second):
		t.Error("no poll")
	}
	if got := c.open(context.Background()); got != c.on || !a.polls.repeat || !a.clock.stale {
		t.Errorf("listener %p, again %v, stale %v", got, a.polls.repeat, a.clock.stale)
	}
	delete(s.channels, "c")
}

func TestCapabilityBounds(t *testing.T) {
	if c := newBackend(t, newPrefix()).Capabilities(); c.MaxTTL != protocol.MaxTTL || protocol.Millis(protocol.MaxTTL) <= 0 || backend.LossTTL != c.Loss {
		t.Errorf("%+v", c)
	}
}
