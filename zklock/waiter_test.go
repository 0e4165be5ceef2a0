package zklock

import (
	"testing"

	"github.com/go-zookeeper/zk"
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
