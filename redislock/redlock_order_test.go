package redislock

import (
	"sync"
	"testing"
	"time"
)

// An attempt that is cleaned up while a node comes back: both want the mutex of the
// client and that of the attempt.
func TestRedlockCleanWhilePolling(t *testing.T) {
	t.Parallel()
	r := &Redlock{closed: true, ballots: map[string]*ballot{}} // closed: clean looks, and goes no further
	a := &ballot{r: r, changed: make(chan struct{}, 1), votes: make([]vote, 1)}
	r.ballots["a"] = a
	var both sync.WaitGroup
	for _, do := range []func(){func() { a.clean(0) }, r.pollNow} {
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
		t.Fatal("they wait for each other")
	}
}
