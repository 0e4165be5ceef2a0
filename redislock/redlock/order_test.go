package redlock

import (
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/redislock/internal/server"
)

// An attempt is cleaned up while a node comes back. Both need the mutex of the client and
// that of the attempt.
func TestRedlockCleanWhilePolling(t *testing.T) {
	t.Parallel()
	n := &node{srv: server.New(nil)}
	n.srv.Stop() // freeInBackground returns
	r := &Backend{nodes: []*node{n}, attempts: map[string]*attempt{}}
	a := &attempt{r: r, changed: make(chan struct{}, 1), votes: []*vote{{}}}
	r.attempts["a"] = a
	var both sync.WaitGroup
	for _, do := range []func(){func() { a.freeInBackground(0) }, r.pollNow} {
		both.Go(func() {
			for range 20_000 {
				do()
			}
		})
	}
	done := make(chan struct{})
	go func() { both.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("deadlock")
	}
}

// Answers and notifications of a node overtake each other, and its clock may be stepped. The
// tokens of the node order them.
func TestRedlockVoteOrder(t *testing.T) {
	until := time.Now().Add(time.Hour)
	granted := func(token uint64) func(*vote) {
		return func(v *vote) { v.grant(token, time.Now(), until, time.Hour) }
	}
	ended := func(token uint64) func(*vote) { return func(v *vote) { v.end(token) } }
	for what, c := range map[string]struct {
		events []func(*vote)
		token  uint64 // 0: no vote
	}{
		"granted":                                {[]func(*vote){granted(5)}, 5},
		"given away":                             {[]func(*vote){granted(5), ended(5)}, 0},
		"given away, and an older answer":        {[]func(*vote){granted(5), ended(5), granted(5)}, 0},
		"given away, and granted again":          {[]func(*vote){granted(5), ended(5), granted(7)}, 7},
		"granted again before the answer comes":  {[]func(*vote){granted(5), granted(7), ended(5)}, 7},
		"another holder, and then granted":       {[]func(*vote){ended(6), granted(7)}, 7},
		"granted, and an older refusal":          {[]func(*vote){granted(7), ended(6)}, 7},
		"another holder, and an older grant":     {[]func(*vote){ended(6), granted(5)}, 0},
		"another holder since the grant":         {[]func(*vote){granted(5), ended(6)}, 0},
		"an older notification after the answer": {[]func(*vote){granted(7), granted(5)}, 7},
	} {
		v := &vote{}
		for _, e := range c.events {
			e(v)
		}
		if got := v.token; got != c.token || (v.state == mine) != (c.token > 0) {
			t.Errorf("%s: state %d with token %d, want %d", what, v.state, got, c.token)
		}
	}
}
