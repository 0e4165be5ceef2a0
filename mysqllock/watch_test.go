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

// queueOf is the beginning of a queue.
func queueOf(owners ...int) (queue string, whole bool) {
	for _, n := range owners {
		head, rest := entry(backend.Request{Owner: ownerOf(n), TTL: time.Second, Metadata: "some metadata"})
		queue += head + strings.Repeat("0", joinedDigits) + rest
	}
	return queue[:min(len(queue), seen)], len(queue) <= seen
}

// What a watch reads says whom to wait for, and to whom of its own it matters.
func TestSpread(t *testing.T) {
	many := make([]int, 300)
	for i := range many {
		many[i] = 1000 + i
	}
	last, _ := queueOf(many...)
	lastSeen := last[strings.LastIndex(last, ";")+1:]
	if len(lastSeen) < ownerLen {
		lastSeen = last[:strings.LastIndex(last, ";")]
		lastSeen = lastSeen[strings.LastIndex(lastSeen, ";")+1:]
	}
	for name, c := range map[string]struct {
		holder  int
		queue   []int
		own     []int // of this process
		joining []int // of those, who may not be in the queue yet
		over    bool  // the lease is

		ahead []string
		told  []int
		waits bool
	}{
		"behind the holder":            {holder: 1, queue: []int{2, 3}, own: []int{2}, ahead: []string{ownerOf(1)}, waits: true},
		"behind another":               {holder: 1, queue: []int{2, 3}, own: []int{3}, ahead: []string{ownerOf(2), ownerOf(1)}, waits: true},
		"the first of two":             {holder: 1, queue: []int{2, 3, 4, 5}, own: []int{5, 3}, ahead: []string{ownerOf(2), ownerOf(1)}, waits: true},
		"granted":                      {holder: 3, queue: []int{4}, own: []int{3}, told: []int{3}},
		"granted, and another behind":  {holder: 3, queue: []int{4, 5}, own: []int{3, 5}, ahead: []string{ownerOf(4), ownerOf(3)}, told: []int{3}, waits: true},
		"granted, and the next":        {holder: 3, queue: []int{5}, own: []int{3, 5}, ahead: []string{ownerOf(3)}, told: []int{3}, waits: true},
		"not in the queue any more":    {holder: 1, queue: []int{2}, own: []int{3}, ahead: []string{ownerOf(2), ownerOf(1)}, told: []int{3}, waits: true},
		"not in the queue yet":         {holder: 1, queue: []int{2}, own: []int{3}, joining: []int{3}, ahead: []string{ownerOf(2), ownerOf(1)}, waits: true},
		"the holder's lease is over":   {holder: 1, queue: []int{2, 3}, own: []int{2, 3}, over: true, ahead: []string{ownerOf(1)}, told: []int{2}, waits: true},
		"granted, and over":            {holder: 3, own: []int{3}, over: true, ahead: []string{ownerOf(3)}, told: []int{3}, waits: true},
		"nobody of this process":       {holder: 1, queue: []int{2}},
		"behind all that can be seen":  {holder: 1, queue: many, own: []int{1299}, ahead: []string{lastSeen[:ownerLen], ownerOf(1)}, waits: true},
		"within what can be seen":      {holder: 1, queue: many, own: []int{1001, 1299}, ahead: []string{ownerOf(1000), ownerOf(1)}, waits: true},
		"at the head of a long queue":  {holder: 1, queue: many, own: []int{1000}, ahead: []string{ownerOf(1)}, waits: true},
		"free and nobody in the queue": {own: []int{3}, over: true, ahead: []string{""}, told: []int{3}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newBell(&Backend{table: table{name: "t"}}, "db", true, 1, 1)
			for _, n := range c.own {
				li := l.listen("k", ownerOf(n), time.Second)
				if !slices.Contains(c.joining, n) {
					li.queued = time.Now().Add(-time.Minute)
				}
			}
			w := l.keys["k"]
			if w == nil {
				w = &watch{}
			}
			s := state{now: 1000, expires: 2000, sent: time.Now()}
			if c.holder != 0 {
				s.owner = ownerOf(c.holder)
			}
			if c.over {
				s.expires = 1000
			}
			s.queue, s.whole = queueOf(c.queue...)
			ahead, _, waits := l.spread(w, "k", s)
			if waits != c.waits || waits && !slices.Equal(ahead, c.ahead) {
				t.Errorf("want to wait (%v) for %v, got %v, %v", c.waits, c.ahead, waits, ahead)
			}
			for owner, li := range w.listeners {
				told := len(li.news) > 0
				if want := slices.ContainsFunc(c.told, func(n int) bool { return ownerOf(n) == owner }); told != want {
					t.Errorf("attempt %s: want it told: %v, got %v", owner, want, told)
				}
			}
		})
	}
}

// Names of two tables, and of two databases, are different, and within what servers
// accept.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, at := range []struct{ database, table string }{{"a", "t"}, {"b", "t"}, {"a", "u"}} {
		name := newBell(&Backend{table: table{name: at.table}}, at.database, true, 1, 1).name(ownerOf(1))
		if len(name) > 64+2 || seen[name] {
			t.Errorf("%v: name %s", at, name)
		}
		seen[name] = true
	}
}
