package zklock

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend/places"
)

// events are those of a watch, as "id change".
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(p places.Place, c places.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprint(p.ID, " ", c))
}

func (e *events) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := strings.Join(e.all, ", ")
	e.all = nil
	return all
}

// TestWatchEnds: a watch has ended after a change of its node, and with its connection. It says so.
func TestWatchEnds(t *testing.T) {
	ended, updated := fmt.Sprint("/a ", places.Ended), fmt.Sprint("/a ", places.Updated)
	interrupted := fmt.Sprint("/a ", places.Interrupted)
	for name, c := range map[string]struct {
		events []zk.Event
		want   string
	}{
		"deleted":              {[]zk.Event{{Type: zk.EventNodeDeleted, Path: "/a"}, {Type: zk.EventNodeDeleted, Path: "/a"}}, ended},
		"changed":              {[]zk.Event{{Type: zk.EventNodeDataChanged, Path: "/a"}}, updated + ", " + interrupted},
		"another node":         {[]zk.Event{{Type: zk.EventNodeDeleted, Path: "/b"}}, ""},
		"the connection":       {[]zk.Event{{Type: zk.EventSession, State: zk.StateDisconnected}}, interrupted},
		"before, disconnected": {[]zk.Event{{Type: zk.EventSession, State: zk.StateConnecting}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ss := &session{watchers: map[string]map[*watcher]struct{}{}, connected: make(chan struct{})}
			close(ss.connected)
			var e events
			ss.add(&watcher{id: "/a", path: "/a", changed: e.add})
			for _, one := range c.events {
				ss.onEvent(one)
			}
			if got := e.take(); got != c.want {
				t.Errorf("want %q, got %q", c.want, got)
			}
		})
	}
}

// TestChildren: of places that have ended since the last listing the last is reported first, so that no waiter is
// granted by the end of those before it while its own has ended too.
func TestChildren(t *testing.T) {
	f := newFakeServer(t, 0)
	n := &nodes{stats: map[string]zk.Stat{}}
	f.handle = n.handle
	ss := newTestSession(t, f, time.Minute)
	dir := ss.s.lockNode("key")
	var names []string
	for i := range 3 {
		names = append(names, fmt.Sprintf("%s/%s-%010d", dir, strings.Repeat("0a", 16), i))
		n.stats[names[i]] = zk.Stat{}
	}
	var e events
	w := &watcher{path: dir, changed: e.add, children: true}
	if err := w.list(t.Context(), ss); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	delete(n.stats, names[0])
	delete(n.stats, names[2])
	n.mu.Unlock()
	if err := w.list(t.Context(), ss); err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprint(names[2], " ", places.Ended), fmt.Sprint(names[0], " ", places.Ended)}
	if got := e.take(); got != strings.Join(want, ", ") || !slices.ContainsFunc(w.known, func(c child) bool { return c.seq == 1 }) {
		t.Errorf("want %q, got %q", want, got)
	}
}
