package zklock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// TestOwnWatch checks the condition of a grant without a request: the watch of the own
// node must be silent, and on the connection that reported the predecessor's deletion.
func TestOwnWatch(t *testing.T) {
	const path, czxid = "/interlock/key/owner-0000000007", 42
	silent := make(chan zk.Event, 1)
	reported := make(chan zk.Event, 1)
	reported <- zk.Event{Type: zk.EventNodeDeleted, Path: path}
	there := &zk.Stat{Czxid: czxid}
	for name, c := range map[string]struct {
		name       string
		w          node
		connection int // the current one
		want       bool
	}{
		"there":                         {"owner-0000000007", node{stat: there, event: silent, conn: 3}, 3, true},
		"deleted":                       {"owner-0000000007", node{stat: there, event: reported, conn: 3}, 3, false},
		"not found":                     {"owner-0000000007", node{conn: 3}, 3, false},
		"of a connection that was lost": {"owner-0000000007", node{stat: there, event: silent, conn: 2}, 3, false},
		"another node of the same name": {"owner-0000000007", node{stat: &zk.Stat{Czxid: czxid + 1}, event: silent, conn: 3}, 3, false},
		"not watched":                   {"owner-0000000006", node{stat: there, event: silent, conn: 3}, 3, false},
	} {
		w := &waiter{
			a:       &attempt{path: path, token: czxid, s: &session{number: c.connection}},
			place:   child{node: "owner-0000000007"},
			watches: map[string]node{c.name: c.w},
		}
		if got := w.ownWatch() != nil; got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestPlacesThatAreGone: a waiter whose place in front is deleted reads all others that it does not watch in one round
// trip. After two, a holder that releases at once has passed the lock on.
func TestPlacesThatAreGone(t *testing.T) {
	const dir = "/interlock/key"
	gone := []child{place("a", 1), place("b", 2)}
	further, nearest, own := place("c", 3), place("d", 4), place("e", 5)
	deleted := func(c child) zk.Event { return zk.Event{Type: zk.EventNodeDeleted, Path: dir + "/" + c.node} }
	furtherEvent, nearestEvent := make(chan zk.Event, 1), make(chan zk.Event, 1)

	f := newFakeServer(t, 0)
	var read, watched atomic.Int64
	f.handle = func(op int32, req []byte) (body []byte, code int32, done bool) {
		if op != 4 { // get
			return nil, 0, false
		}
		path := string(req[4 : len(req)-1])
		if strings.HasSuffix(path, own.node) {
			return nil, 0, false
		}
		if req[len(req)-1] == 1 {
			watched.Add(1)
		}
		if read.Add(1) == int64(len(gone)) {
			nearestEvent <- deleted(nearest)
		}
		return nil, -101, true // no node
	}
	s := newTestSession(t, f, time.Minute)
	w := &waiter{
		a:     &attempt{b: s.b, s: s, dir: dir, path: dir + "/" + own.node, token: 7, req: backend.Request{TTL: time.Minute}},
		view:  &view{places: []child{gone[0], gone[1], further, nearest, own}, read: 5},
		place: own,
		watches: map[string]node{
			further.node: {stat: &zk.Stat{}, event: furtherEvent, conn: s.connNumber()},
			nearest.node: {stat: &zk.Stat{}, event: nearestEvent, conn: s.connNumber()},
			own.node:     {stat: &zk.Stat{Czxid: 7}, event: make(chan zk.Event), conn: s.connNumber()},
		},
	}
	furtherEvent <- deleted(further)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	g, err := w.advance(ctx)
	if err != nil || g == nil {
		t.Fatalf("want a grant, got %v", err)
	}
	if read.Load() != 2 || watched.Load() != 0 {
		t.Errorf("want both places that are gone read together and not watched, got %d read, of them %d watched", read.Load(), watched.Load())
	}
}
