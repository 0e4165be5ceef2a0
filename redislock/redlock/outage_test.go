package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/redlock/internal/wire"
)

// status records the reports of a backend with one node, whose answers the test makes.
type status struct {
	n       *node
	reports []string
	then    func() // called once, during the next report
}

func newStatus() *status {
	r := &Backend{}
	s := &status{n: &node{r: r, name: "a"}}
	r.nodes, r.clocks.all = []*node{s.n}, make([]clock, 1)
	return s
}

func (s *status) subscribe() {
	s.n.r.ReportStatus(func(what string, _ error) {
		if f := s.then; f != nil {
			s.then = nil
			f()
		}
		s.reports = append(s.reports, what)
	})
}

func (s *status) want(t *testing.T, want ...string) {
	t.Helper()
	for i, state := range want {
		want[i] = "redlock node a " + state
	}
	if !slices.Equal(s.reports, want) {
		t.Errorf("want %q, got %q", want, s.reports)
	}
}

const out, back = "does not vote", "votes again"

var errRefused = errors.New("refused")

// The request that was sent last decides whether a node is out, in whatever order requests end.
func TestRedlockOutageByTheLastRequest(t *testing.T) {
	s, at := newStatus(), time.Now()
	s.subscribe()
	ends := func(sent int, err error) {
		s.n.answered(protocol.Reply{Sent: at}, err, at.Add(time.Duration(sent)), false)
	}
	ends(1, nil)
	ends(3, errRefused)
	ends(2, nil) // answered before the node went away
	s.want(t, out)
	ends(5, nil)
	ends(4, errRefused) // before it came back
	s.want(t, out, back)
	ends(6, errRefused)
	s.want(t, out, back, out)
}

// A change during a report is reported after it.
func TestRedlockOutageReportsInOrder(t *testing.T) {
	s := newStatus()
	s.subscribe()
	s.then = func() { s.n.answered(protocol.Reply{Sent: time.Now()}, nil, time.Now(), false) }
	s.n.answered(protocol.Reply{}, errRefused, time.Now(), false)
	s.want(t, out, back)
}

// ReportStatus reports outages that began before, and only those that have not ended.
func TestRedlockOutageBeforeReportStatus(t *testing.T) {
	s := newStatus()
	s.n.answered(protocol.Reply{}, errRefused, time.Now(), false)
	s.subscribe()
	s.want(t, out)
	s = newStatus()
	s.n.answered(protocol.Reply{}, errRefused, time.Now(), false)
	s.n.answered(protocol.Reply{Sent: time.Now()}, nil, time.Now(), false)
	s.subscribe()
	s.want(t)
}

// A process that pauses during its first round for longer than the timeouts still gets the
// answers.
func TestRedlockPauseOfTheFirstRound(t *testing.T) {
	cs := masters(t, 3)
	r, ps := slowly(t, cs, WithNodeTimeout(10*time.Second)) // 30 s for a quorum
	req := redlockRequest("k", 1)
	req.TTL = time.Minute
	a := r.newAttempt(req, joinQueue)
	w := &waiting{attempt: a, timer: time.NewTimer(time.Hour)}
	asked, deliver := make(chan bool, len(ps)), make(chan struct{})
	for _, p := range ps {
		p.Set(onScript(wire.Acquire, func() action {
			asked <- true
			<-deliver
			return pass
		}))
	}
	ch := make(chan acquired, 1)
	go func() {
		g, err := w.wait(context.Background())
		ch <- acquired{Grant: g, Err: err}
	}()
	for range ps {
		<-asked
	}
	a.mu.Lock()
	a.roundStart = a.roundStart.Add(-time.Hour)
	a.signal()
	eventually(t, "it handles the signal", func() bool { return len(a.changed) == 0 })
	a.mu.Unlock()
	var early error
	select {
	case got := <-ch:
		early = fmt.Errorf("without an answer: %w", got.Err)
	case <-time.After(100 * time.Millisecond): // nothing ends this but the answers
	}
	close(deliver)
	must(t, early)
	must(t, get(t, ch).Release(t.Context()))
}

// A request that is too late at every node is sent again: after a pause of the machine, or if
// the nodes' clocks were stepped, as here.
func TestRedlockLateAtEveryNode(t *testing.T) {
	cs := masters(t, 3)
	for what, acquire := range map[string]func(*Backend, context.Context, backend.Request) (backend.Grant, error){
		"TryAcquire": (*Backend).TryAcquire, "Acquire": (*Backend).Acquire,
	} {
		r := newRedlock(t, cs)
		r.clocks.mu.Lock()
		for i := range r.clocks.all {
			c := &r.clocks.all[i]
			c.lo, c.hi = c.lo-time.Hour, c.hi-time.Hour
		}
		r.clocks.mu.Unlock()
		g, err := acquire(r, t.Context(), redlockRequest("k", 1))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		must(t, g.Release(t.Context()))
	}
}

func TestRedlockUnansweredSubscription(t *testing.T) {
	t.Parallel()
	var kept *atomic.Int64
	r, _ := behindProxies(t, masters(t, 3), func(ps []*proxy) { kept = subscribeHangs(t, ps[0], 1) })
	eventually(t, "it subscribes", func() bool { return kept.Load() > 0 })
	eventually(t, "it subscribes again", r.nodes[0].subscribed)
}
