package zklock

import (
	"testing"

	"github.com/go-zookeeper/zk"
)

// TestOwnPlace is what a grant that asks nobody rests on: the watch of the own node
// must be silent, and of the connection on which the predecessor's spoke.
func TestOwnPlace(t *testing.T) {
	const path, czxid = "/interlock/key/owner-0000000007", 42
	silent := make(chan zk.Event, 1)
	spoken := make(chan zk.Event, 1)
	spoken <- zk.Event{Type: zk.EventNodeDeleted, Path: path}
	there := &zk.Stat{Czxid: czxid}
	for name, c := range map[string]struct {
		node       string
		w          watched
		connection int // the current one
		want       bool
	}{
		"there":                           {base(path), watched{stat: there, gone: silent, connection: 3}, 3, true},
		"deleted":                         {base(path), watched{stat: there, gone: spoken, connection: 3}, 3, false},
		"not found":                       {base(path), watched{connection: 3}, 3, false},
		"of a connection that was lost":   {base(path), watched{stat: there, gone: silent, connection: 2}, 3, false},
		"of a connection that is unknown": {base(path), watched{stat: there, gone: silent}, 0, false},
		"another node of the same name":   {base(path), watched{stat: &zk.Stat{Czxid: czxid + 1}, gone: silent, connection: 3}, 3, false},
		"not watched":                     {"owner-0000000006", watched{stat: there, gone: silent, connection: 3}, 3, false},
	} {
		w := &wait{
			a:    &attempt{path: path, token: czxid, s: &session{serial: c.connection}},
			seen: map[string]watched{c.node: c.w},
		}
		if got := w.own() != nil; got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
