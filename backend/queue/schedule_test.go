package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Every answer sets when the first of a line asks next: a watcher when the lease ends, another one later, and behind a
// lease that does not end with growing pauses.
func TestNextRequest(t *testing.T) {
	const ttl, forever = 10 * time.Second, -time.Millisecond
	foreign := backend.Holder{Foreign: true}
	for _, c := range []struct {
		name    string
		ttl     time.Duration
		answers []Answer        // one after another
		want    []time.Duration // after each
	}{
		{"watcher", ttl, []Answer{{Left: 20 * time.Second, Watch: true}}, []time.Duration{20 * time.Second}},
		{"not the watcher", ttl, []Answer{{Left: 20 * time.Second}}, []time.Duration{30*time.Second + 50*time.Millisecond}},
		{"a provisional lease may become a whole one", ttl, []Answer{{Left: 3 * time.Second}}, []time.Duration{15*time.Second + 50*time.Millisecond}},
		{"of which its own TTL counts up to a bound", time.Hour, []Answer{{Left: 3 * time.Second}}, []time.Duration{45*time.Second + 50*time.Millisecond}},
		{
			"a lease that does not end", ttl,
			[]Answer{{Left: forever, Watch: true}, {Left: forever, Watch: true}, {Left: forever, Watch: true}, {Left: forever, Watch: true}, {Left: forever, Watch: true}, {Left: forever, Watch: true}},
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second, time.Second},
		},
		{"a lease that does not end, and not the watcher", ttl, []Answer{{Left: forever}}, []time.Duration{500 * time.Millisecond}},
		{"a foreign holder", ttl, []Answer{{Left: time.Minute, Watch: true, Holder: foreign}}, []time.Duration{time.Second}},
		{"a foreign holder with a short lease", ttl, []Answer{{Left: 100 * time.Millisecond, Watch: true, Holder: foreign}}, []time.Duration{100 * time.Millisecond}},
		{"a lease as long as a foreign holder may set it", ttl, []Answer{{Left: 10 * backend.MaxTTL, Watch: true}}, []time.Duration{10 * backend.MaxTTL}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, s := &attempt{req: backend.Request{TTL: c.ttl}}, &schedule{}
				for i, answer := range c.answers {
					answer.Sent = time.Now()
					s.answered(a, answer, false)
					if d := time.Until(s.due(a)) - c.want[i]; d < 0 || d > 2*time.Millisecond {
						t.Errorf("answer %d: it asks after %v, want %v", i, time.Until(s.due(a)), c.want[i])
					}
				}
			})
		})
	}
}

// An event sets it too, within the bound of the last answer. One that comes while a request is in flight makes the line
// ask again after that.
func TestNextRequestAfterEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := &attempt{req: backend.Request{TTL: 30 * time.Second}}, &schedule{}
		answer := Answer{Sent: time.Now(), Left: 20 * time.Second, Watch: true}
		want := func(d time.Duration) {
			t.Helper()
			if got := time.Until(s.due(a)) - d; got < 0 || got > 2*time.Millisecond {
				t.Errorf("it asks after %v, want %v", time.Until(s.due(a)), d)
			}
		}
		s.leaseEnds(4 * time.Second) // before the first answer
		s.answered(a, answer, false)
		want(0)
		s.answered(a, answer, false)
		want(20 * time.Second)
		s.leaseEnds(5 * time.Second)
		want(5 * time.Second)
		s.leaseEnds(25 * time.Second)
		want(25 * time.Second)
		s.leaseEnds(time.Hour)
		want(45*time.Second + 50*time.Millisecond)
		s.now()
		s.answered(a, answer, false)
		want(0)
	})
}

// A pushed grant is trusted until its end by the clock of the service, which the last answer has shown, however late its
// event comes. Without an answer of that clock it is not trusted.
func TestUntilOfPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := &clock{}
		g := Grant{Received: start.Add(2 * time.Second), Expires: 6 * time.Second, TTL: 3 * time.Second}
		none := func(what string) {
			t.Helper()
			if u := c.until(g); !u.IsZero() {
				t.Errorf("%s: it is trusted until %v", what, u.Sub(start))
			}
		}
		none("without an answer")
		c.observe(Answer{Sent: start, Now: time.Second})
		for _, received := range []time.Duration{2 * time.Second, 4900 * time.Millisecond} {
			g.Received = start.Add(received)
			if u, want := c.until(g), start.Add(5*time.Second-received/2000); !u.Equal(want) {
				t.Errorf("received after %v: it is trusted until %v, want %v", received, u.Sub(start), want.Sub(start))
			}
		}
		g.Received = start.Add(time.Second)
		none("the clock of the service was set forward")
		g.Received = start.Add(2 * time.Second)
		time.Sleep(time.Second)
		c.invalidate()
		none("events may have been lost")
		c.observe(Answer{Sent: start, Now: time.Second})
		none("the answer to a request that was sent before that")
		c.observe(Answer{Sent: time.Now(), Now: 2 * time.Second})
		if c.until(g).IsZero() {
			t.Error("after an answer it is not trusted")
		}
		g.Expires = 0
		none("an end that is not known")
	})
}

// broken is a Service that grants every key at once and ends nothing.
type broken struct{ Service }

func (broken) Acquire(_ context.Context, a Attempt) (Answer, error) {
	return Answer{Sent: time.Now(), Granted: true, Token: 1, Left: a.TTL}, nil
}

func (broken) End(_ context.Context, ends []End) []Ended {
	all := make([]Ended, len(ends))
	for i := range all {
		all[i].Err = errors.New("no answer")
	}
	return all
}

// Nothing is remembered of an attempt whose release had no answer.
func TestNothingRemainsAfterReleaseFails(t *testing.T) {
	b := New(broken{})
	for _, acquire := range []func(context.Context, backend.Request) (backend.Grant, error){b.Acquire, b.TryAcquire} {
		g, err := acquire(t.Context(), backend.Request{Key: "key", Owner: "owner", TTL: time.Minute, OnLost: func(error) {}})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.attempts) != 1 {
			t.Errorf("%d attempts are known while one holds", len(b.attempts))
		}
		if err := g.Release(t.Context()); err == nil {
			t.Fatal("Release: want the error of the service")
		}
		if n := len(b.attempts) + len(b.settled) + len(b.lines); n != 0 {
			t.Errorf("%d attempts and lines are remembered", n)
		}
	}
}
