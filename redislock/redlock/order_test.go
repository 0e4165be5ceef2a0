package redlock

import (
	"sync"
	"testing"
	"time"
)

// An attempt is cleaned up while a node comes back. Both need the mutex of the client and
// that of the attempt.
func TestRedlockCleanWhilePolling(t *testing.T) {
	t.Parallel()
	r := &Backend{closed: true, attempts: map[string]*attempt{}} // closed: freeInBackground returns
	a := &attempt{r: r, changed: make(chan struct{}, 1), votes: make([]vote, 1)}
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
