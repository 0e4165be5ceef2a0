package mysqllock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func ownerOf(n int) string { return fmt.Sprintf("%032x", n) }

// queueOf returns a queue as selectRow reads it.
func queueOf(owners ...int) (queue string, complete bool) {
	for _, n := range owners {
		head, rest := entry(backend.Request{Owner: ownerOf(n), TTL: time.Second, Metadata: "some metadata"})
		queue += head + strings.Repeat("0", joinedDigits) + rest
	}
	return queue[:min(len(queue), maxQueueRead)], len(queue) <= maxQueueRead
}

// TestDispatch checks whose named locks a watcher waits for, and which attempts of its
// process it wakes.
func TestDispatch(t *testing.T) {
	many := make([]int, 300)
	for i := range many {
		many[i] = 1000 + i
	}
	visible, _ := queueOf(many...)
	lastVisible := ""
	for _, owner := range queueOwners(visible) {
		lastVisible = owner
	}
	for name, c := range map[string]struct {
		holder  int
		queue   []int
		own     []int // of this process
		joining []int // of those, which may not be in the queue yet
		expired bool

		ahead []string // none: the watcher ends
		woken []int
	}{
		"behind the holder":              {holder: 1, queue: []int{2, 3}, own: []int{2}, ahead: []string{ownerOf(1)}},
		"behind another waiter":          {holder: 1, queue: []int{2, 3}, own: []int{3}, ahead: []string{ownerOf(2), ownerOf(1)}},
		"the first of two":               {holder: 1, queue: []int{2, 3, 4, 5}, own: []int{5, 3}, ahead: []string{ownerOf(2), ownerOf(1)}},
		"granted":                        {holder: 3, queue: []int{4}, own: []int{3}, woken: []int{3}},
		"granted, another waits":         {holder: 3, queue: []int{4, 5}, own: []int{3, 5}, ahead: []string{ownerOf(4), ownerOf(3)}, woken: []int{3}},
		"granted, the next waits":        {holder: 3, queue: []int{5}, own: []int{3, 5}, ahead: []string{ownerOf(3)}, woken: []int{3}},
		"not in the queue any more":      {holder: 1, queue: []int{2}, own: []int{3}, ahead: []string{ownerOf(2), ownerOf(1)}, woken: []int{3}},
		"not in the queue yet":           {holder: 1, queue: []int{2}, own: []int{3}, joining: []int{3}, ahead: []string{ownerOf(2), ownerOf(1)}},
		"the lease has expired":          {holder: 1, queue: []int{2, 3}, own: []int{2, 3}, expired: true, ahead: []string{ownerOf(1)}, woken: []int{2}},
		"granted, and expired":           {holder: 3, own: []int{3}, expired: true, ahead: []string{ownerOf(3)}, woken: []int{3}},
		"no waiter of this process":      {holder: 1, queue: []int{2}},
		"behind all that is visible":     {holder: 1, queue: many, own: []int{1299}, ahead: []string{lastVisible, ownerOf(1)}},
		"within what is visible":         {holder: 1, queue: many, own: []int{1001, 1299}, ahead: []string{ownerOf(1000), ownerOf(1)}},
		"the first in a long queue":      {holder: 1, queue: many, own: []int{1000}, ahead: []string{ownerOf(1)}},
		"a free key and no queue at all": {own: []int{3}, expired: true, ahead: []string{""}, woken: []int{3}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNotifier(&Backend{table: table{name: "t"}}, "db", true, 1, 1)
			w := &keyWatcher{n: n}
			for _, own := range c.own {
				wt := n.register("k", ownerOf(own), time.Second)
				if w = wt.w; !slices.Contains(c.joining, own) {
					wt.queuedAt = time.Now().Add(-time.Minute)
				}
			}
			s := rowState{now: 1000, expires: 2000, sent: time.Now()}
			if c.holder != 0 {
				s.owner = ownerOf(c.holder)
			}
			if c.expired {
				s.expires = 1000
			}
			s.queue, s.complete = queueOf(c.queue...)
			if ahead, _ := w.dispatch(s); !slices.Equal(ahead, c.ahead) {
				t.Errorf("want to wait for %v, got %v", c.ahead, ahead)
			}
			for owner, wt := range w.waiters {
				woken := len(wt.news) > 0
				if want := slices.ContainsFunc(c.woken, func(n int) bool { return ownerOf(n) == owner }); woken != want {
					t.Errorf("attempt %s: want it woken: %v, got %v", owner, want, woken)
				}
			}
		})
	}
}

// TestNames: named locks of two tables, and of two databases, differ, and their length is
// within the limit of the servers.
func TestNames(t *testing.T) {
	used := map[string]bool{}
	for _, at := range []struct{ database, table string }{{"a", "t"}, {"b", "t"}, {"a", "u"}} {
		name := newNotifier(&Backend{table: table{name: at.table}}, at.database, true, 1, 1).name(ownerOf(1))
		if len(name) > 64+2 || used[name] {
			t.Errorf("%v: named lock %s", at, name)
		}
		used[name] = true
	}
}

// TestReadAt: a row was read before its answer was received, and not later than the server's
// clock says, which may be faster than the local one.
func TestReadAt(t *testing.T) {
	sent := time.Now()
	for name, c := range map[string]struct{ waited, received, want time.Duration }{
		"at once":                  {0, time.Millisecond, 0},
		"after a wait":             {90 * time.Second, 91 * time.Second, 90*time.Second - 45*time.Millisecond},
		"faster clock":             {90 * time.Second, 90*time.Second - 40*time.Millisecond, 90*time.Second - 45*time.Millisecond},
		"clock set forward":        {time.Hour, time.Second, time.Second},
		"answer after a long time": {time.Second, time.Hour, time.Second - 500*time.Microsecond},
	} {
		if got := readAt(sent, sent.Add(c.received), c.waited).Sub(sent); got != c.want {
			t.Errorf("%s: want %v after the request, got %v", name, c.want, got)
		}
	}
}
