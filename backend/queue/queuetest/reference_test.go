package queuetest

import (
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

func attempt(owner string, mode queue.Mode) queue.Attempt {
	return queue.Attempt{Request: backend.Request{Key: "k", Owner: owner, TTL: 10 * time.Second}, Mode: mode}
}

// A released key is pushed to the first waiter. If it is not claimed, the waiters of that process are passed over, and
// the next grant is shorter.
func TestUnclaimed(t *testing.T) {
	var r Reference
	for i, c := range []struct{ process, owner string }{{"p", "a"}, {"q", "b"}, {"s", "c"}, {"q", "d"}, {"s", "e"}} {
		a, events := r.Acquire(time.Duration(i)*time.Millisecond, c.process, attempt(c.owner, queue.Join))
		if a.Granted != (i == 0) || a.Watch != (i == 1) || len(events) > 0 {
			t.Fatal(c.owner, a, events)
		}
	}
	ended, events := r.End(time.Second, "p", queue.End{Request: backend.Request{Key: "k", Owner: "a"}})
	if !ended.Held || ended.Pass != queue.ProvisionalTTL || len(events) != 2 || // one for c
		events[0].Kind != Granted || events[0].Owner != "b" || events[1].Kind != LeaseEnds || events[1].Owner != "c" {
		t.Fatal(ended, events)
	}
	passed, events := r.Pass(4*time.Second, "k", false)
	if passed.Pass != queue.ShortProvisionalTTL || len(events) != 2 || events[0].Owner != "c" ||
		events[1].Kind != Removed || events[1].Owner != "d" {
		t.Fatal(passed, events)
	}
	_, events = r.Acquire(4*time.Second, "s", attempt("c", queue.Join))
	if r.lapsed || len(events) != 1 || events[0].Kind != LeaseEnds || events[0].Owner != "e" {
		t.Fatal("after a claim: want lapsed unset, and the watcher informed, got", r.lapsed, events)
	}
	_, events = r.End(5*time.Second, "s", queue.End{Request: backend.Request{Key: "k", Owner: "c"}})
	if events[0].Owner != "e" {
		t.Fatal("got", events, "want the waiter behind that of a suspect")
	}
}

// The watcher is informed of a lease that ends earlier than before by more than InformSlack.
func TestInformSlack(t *testing.T) {
	var r Reference
	r.Acquire(0, "p", attempt("a", queue.Join))
	r.Acquire(0, "q", attempt("b", queue.Join))
	for earlier, want := range []int{0, 1} {
		ttl := 10*time.Second - queue.InformSlack - time.Duration(earlier)
		r.Renew(0, "p", queue.Hold{Key: "k", Owner: "a", TTL: 10 * time.Second, Exactly: true})
		_, events := r.Renew(0, "p", queue.Hold{Key: "k", Owner: "a", TTL: ttl, Exactly: true})
		if len(events) != want {
			t.Errorf("a lease of %v instead of 10s: want %d events, got %v", ttl, want, events)
		}
	}
}
