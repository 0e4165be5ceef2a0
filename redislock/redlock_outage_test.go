package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// told is what a Redlock says of one node, whose answers the test makes.
type told struct {
	n    *voter
	said []string
	then func() // once, while the next thing is said
}

func newTold() *told {
	r := &Redlock{}
	s := &told{n: &voter{r: r, name: "a"}}
	r.nodes = []*voter{s.n}
	return s
}

func (s *told) listen() {
	s.n.r.Notify(func(what string, _ error) {
		if f := s.then; f != nil {
			s.then = nil
			f()
		}
		s.said = append(s.said, what)
	})
}

func (s *told) want(t *testing.T, want ...string) {
	t.Helper()
	for i, state := range want {
		want[i] = "redlock node a " + state
	}
	if !slices.Equal(s.said, want) {
		t.Errorf("want %q, got %q", want, s.said)
	}
}

const out, back = "does not vote", "votes again"

var errRefused = errors.New("refused")

// A node's outage is told by the request that was sent last, whichever ends last.
func TestRedlockOutageByTheLastRequest(t *testing.T) {
	s, at := newTold(), time.Now()
	s.listen()
	ends := func(sent int, err error) {
		s.n.answered(reply{sent: at}, err, at.Add(time.Duration(sent)), false)
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

// What changes while something is being said is said after it.
func TestRedlockOutageIsToldInOrder(t *testing.T) {
	s := newTold()
	s.listen()
	s.then = func() { s.n.answered(reply{sent: time.Now()}, nil, time.Now(), false) }
	s.n.answered(reply{}, errRefused, time.Now(), false)
	s.want(t, out, back)
}

// Who comes late is told of an outage that lasts, and of no other.
func TestRedlockOutageBeforeNotify(t *testing.T) {
	s := newTold()
	s.n.answered(reply{}, errRefused, time.Now(), false)
	s.listen()
	s.want(t, out)
	s = newTold()
	s.n.answered(reply{}, errRefused, time.Now(), false)
	s.n.answered(reply{sent: time.Now()}, nil, time.Now(), false)
	s.listen()
	s.want(t)
}

// Who asks for the first time, and then stands still for longer than the nodes are
// waited for, is answered all the same: the answers come a moment later.
func TestRedlockPauseOfTheFirstRound(t *testing.T) {
	cs := masters(t, 3)
	r, ps := slowly(t, cs, WithNodeTimeout(10*time.Second)) // so that it is 30 s in all
	req := redlockRequest("k", 1)
	req.TTL = time.Minute
	a := r.newBallot(req, queueEnter)
	w := &waiting{ballot: a, timer: time.NewTimer(time.Hour)}
	asked, deliver := make(chan bool, len(ps)), make(chan struct{})
	for _, p := range ps {
		p.set(onScript(quorumAcquire, func() action {
			asked <- true
			<-deliver
			return pass
		}))
	}
	ch := make(chan acquired, 1)
	go func() {
		g, err := w.wait(context.Background())
		ch <- acquired{g, err}
	}()
	for range ps {
		<-asked
	}
	a.mu.Lock()
	a.began = a.began.Add(-time.Hour)
	a.signal()
	eventually(t, "it looks what has come", func() bool { return len(a.changed) == 0 })
	a.mu.Unlock()
	var early error
	select {
	case got := <-ch:
		early = fmt.Errorf("without an answer: %w", got.err)
	case <-time.After(100 * time.Millisecond): // nothing ends this but the answers
	}
	close(deliver)
	must(t, early)
	must(t, get(t, ch).Release(t.Context()))
}

// A request that comes too late at every node is sent again: the machine stood still
// while it was under way, or the nodes' clocks were stepped, as here.
func TestRedlockLateAtEveryNode(t *testing.T) {
	cs := masters(t, 3)
	for what, acquire := range map[string]func(*Redlock, context.Context, backend.Request) (backend.Grant, error){
		"TryAcquire": (*Redlock).TryAcquire, "Acquire": (*Redlock).Acquire,
	} {
		r := newRedlock(t, cs)
		for _, n := range r.nodes {
			n.mu.Lock()
			n.lo, n.hi = n.lo-time.Hour, n.hi-time.Hour
			n.mu.Unlock()
		}
		g, err := acquire(r, t.Context(), redlockRequest("k", 1))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		must(t, g.Release(t.Context()))
	}
}
