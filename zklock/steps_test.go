package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// nodes are the children of one lock's node at a fake server.
type nodes struct {
	mu    sync.Mutex
	stats map[string]zk.Stat // by path
	lags  bool               // until the first sync
}

const (
	opDelete, opExists, opGet, opSync, opChildren, opMulti = 2, 3, 4, 9, 12, 14

	theSession = 7 // id of each session of the fake server
)

func (n *nodes) handle(op int32, req []byte) (body []byte, code int32, done bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := func(s string) { body = append(binary.BigEndian.AppendUint32(body, uint32(len(s))), s...) }
	path := ""
	if op != opMulti && len(req) >= 4 {
		path = string(req[4 : 4+binary.BigEndian.Uint32(req)])
	}
	stat, there := n.stats[path]
	switch op {
	case opSync:
		n.lags = false
		text(path)
	case opChildren:
		var names []string
		for p := range n.stats {
			if !n.lags {
				names = append(names, strings.TrimPrefix(p, path+"/"))
			}
		}
		body = binary.BigEndian.AppendUint32(nil, uint32(len(names)))
		for _, name := range names {
			text(name)
		}
		body = append(body, make([]byte, 68)...)
	case opExists, opGet, opDelete:
		if !there {
			return nil, -101, true
		}
		if op == opDelete {
			delete(n.stats, path)
			break
		}
		if op == opGet {
			text("")
		}
		body = binary.BigEndian.AppendUint64(body, uint64(stat.Czxid))
		body = append(body, make([]byte, 8+8+8+4+4+4)...)
		body = binary.BigEndian.AppendUint64(body, uint64(stat.EphemeralOwner))
		body = append(body, make([]byte, 4+4+8)...)
	case opMulti: // one check
		body = []byte{0, 0, 0, 13, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff}
	default:
		return nil, 0, false
	}
	return body, 0, true
}

func (n *nodes) add(path string, stat zk.Stat) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats[path] = stat
}

func (n *nodes) paths() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for p := range n.stats {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

// newTestAttempt returns an attempt in a session of a fake server with these nodes.
func newTestAttempt(t *testing.T, n *nodes) *attempt {
	t.Helper()
	const ttl = time.Minute
	f := newFakeServer(t, 0)
	f.handle = n.handle
	s := newTestSession(t, f, ttl)
	a := s.b.register(backend.Request{Key: "key", Owner: strings.Repeat("0a", 16), TTL: ttl})
	s.retain()
	a.s = s
	return a
}

// TestResolveCreate: after a request to create that was not answered, the attempt finds its
// node although the server lags behind, and nothing else of the attempt remains.
func TestResolveCreate(t *testing.T) {
	for name, c := range map[string]struct {
		owners []int64 // the sessions of the attempt's nodes
		lags   bool
		first  int // sequence number of the first
		want   int // which of them the attempt has then, -1 for none
	}{
		"never created":                  {want: -1},
		"created":                        {owners: []int64{theSession}},
		"the server lags":                {owners: []int64{theSession}, lags: true},
		"in a session that was given up": {owners: []int64{theSession - 1}, want: -1},
		"there and in this one":          {owners: []int64{theSession - 1, theSession}, want: 1},
		"twice":                          {owners: []int64{theSession, theSession}},
		"after the last sequence number": {owners: []int64{theSession}, first: lastSeq + 1, want: -1},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodes{stats: map[string]zk.Stat{}, lags: c.lags}
			a := newTestAttempt(t, n)
			want := []string(nil)
			for i, owner := range c.owners {
				path := fmt.Sprintf("%s/%s-%010d", a.dir, a.req.Owner, c.first+i)
				n.stats[path] = zk.Stat{Czxid: int64(40 + i), EphemeralOwner: owner}
				if i == c.want {
					want = []string{path}
				}
			}
			a.createUnknown = true
			if err := a.resolveCreate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := n.paths(); !slices.Equal(got, want) {
				t.Errorf("nodes at the server: %q, want %q", got, want)
			}
			if strings.Join(want, "") != a.path || a.createUnknown || a.path != "" && a.token != uint64(40+c.want) {
				t.Errorf("the attempt has %q with token %d, unknown: %v; want %q", a.path, a.token, a.createUnknown, want)
			}
		})
	}
}

// TestRenewAfterReconnect renews a grant whose watch was set on an earlier connection:
// Renew reads the node.
func TestRenewAfterReconnect(t *testing.T) {
	const token = 42
	for name, c := range map[string]struct {
		stat *zk.Stat // of the node as it is now
		lost bool
	}{
		"there":              {stat: &zk.Stat{Czxid: token, EphemeralOwner: theSession}},
		"deleted":            {lost: true},
		"created again":      {stat: &zk.Stat{Czxid: token + 1, EphemeralOwner: theSession}, lost: true},
		"of another session": {stat: &zk.Stat{Czxid: token, EphemeralOwner: theSession + 1}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodes{stats: map[string]zk.Stat{}}
			a := newTestAttempt(t, n)
			a.path, a.token = a.dir+"/"+a.req.Owner+"-0000000000", token
			if c.stat != nil {
				n.stats[a.path] = *c.stat
			}
			g := a.grant(time.Now(), &node{stat: &zk.Stat{Czxid: token}, event: make(chan zk.Event), conn: a.s.connNumber() - 1})
			defer g.end(errReleased)
			err := g.Renew(t.Context(), time.Minute)
			if c.lost != errors.Is(err, backend.ErrLost) || !c.lost && err != nil {
				t.Errorf("lost: want %v, got %v", c.lost, err)
			}
		})
	}
}

// TestUntilOfGrant: Until is bounded by the end of the session and by the TTL.
func TestUntilOfGrant(t *testing.T) {
	const ttl = time.Minute
	a := newTestAttempt(t, &nodes{stats: map[string]zk.Stat{}})
	session := a.s.clock.times().until()
	for _, c := range []struct {
		what        string
		asked, want time.Time
	}{
		{"the session ends first", session.Add(time.Second), session},
		{"the TTL ends first", session.Add(-ttl - time.Second), session.Add(-time.Second)},
	} {
		g := a.grant(c.asked, nil)
		g.end(errReleased)
		if !g.Until().Equal(c.want) {
			t.Errorf("%s: Until is %v later than it should be", c.what, g.Until().Sub(c.want))
		}
	}
}

// TestWireConnNotesSendTime: the time of a packet is noted before it is sent.
func TestWireConnNotesSendTime(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	k := &sessionClock{current: sessionTimes{timeout: time.Minute}, relay: 0}
	w := newWireConn(here, k, new(atomic.Int64), time.Minute)
	packet := func(body ...any) []byte {
		b := make([]byte, 4)
		for _, v := range body {
			b, _ = binary.Append(b, binary.BigEndian, v)
		}
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	}
	exchange := func(request, answer []byte) (sent time.Time) {
		t.Helper()
		go func() {
			_, _ = there.Read(make([]byte, 1024))
			_, _ = there.Write(answer)
		}()
		if _, err := w.Write(request); err != nil {
			t.Fatal(err)
		}
		sent = time.Now()
		for n := 0; n < len(answer); {
			m, err := w.Read(make([]byte, 1024))
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
		return sent
	}
	after := func(what string, at, sent time.Time) {
		t.Helper()
		if at.IsZero() || at.After(sent) {
			t.Errorf("%s: noted %v after it was sent", what, at.Sub(sent))
		}
	}
	sent := exchange(make([]byte, 48), packet(int32(0), int32(60_000), int64(77), int32(16), make([]byte, 16), byte(0)))
	after("the handshake", k.current.aliveAt, sent)
	sent = exchange(packet(int32(pingXid), int32(11)), packet(int32(pingXid), int64(5), int32(0)))
	after("a ping", k.unproven[len(k.unproven)-1].sent, sent)
	sent = exchange(packet(int32(1), int32(opMulti), int64(0)), packet(int32(1), int64(6), int32(0)))
	after("a change", k.current.changedAt, sent)
	before := k.current.changedAt
	exchange(packet(int32(2), int32(opMulti), int64(0)), packet(int32(2), int64(7), int32(-101)))
	if !k.current.changedAt.Equal(before) {
		t.Error("a refused change was noted")
	}
}

// TestGrantNeedsOwnNode reports at the same moment that the holder's node and the
// waiter's own are deleted: the waiter is not granted, whichever event it receives first.
func TestGrantNeedsOwnNode(t *testing.T) {
	a := newTestAttempt(t, &nodes{stats: map[string]zk.Stat{}})
	a.path, a.token = a.dir+"/"+a.req.Owner+"-0000000001", 42
	q := queue([]string{strings.Repeat("0b", 16) + "-0000000000", path.Base(a.path)})
	node1 := a.path
	for range 100 {
		a.path = node1
		w := &waiter{a: a, place: q[1], view: &view{}, watches: map[string]node{}}
		w.view.set(q)
		for i, c := range q {
			event := make(chan zk.Event, 1)
			event <- zk.Event{Type: zk.EventNodeDeleted, Path: a.dir + "/" + c.node}
			w.watches[c.node] = node{stat: &zk.Stat{Czxid: int64(41 + i)}, event: event, conn: a.s.connNumber()}
		}
		if g, err := w.advance(t.Context()); g != nil || err == nil || a.path != "" {
			t.Fatalf("got %v, %v for a waiter whose node was deleted", g, err)
		}
	}
}

// TestSessionEndsDuringRequest ends the session while a request to create is not answered:
// the attempt goes on in the next session and has one node there.
func TestSessionEndsDuringRequest(t *testing.T) {
	const ttl = time.Minute
	for _, why := range []error{errSessionExpired, errNoAnswer} {
		for _, how := range []string{"try", "wait"} {
			t.Run(why.Error()+"/"+how, func(t *testing.T) {
				t.Parallel()
				f, n := newFakeServer(t, 0), &nodes{stats: map[string]zk.Stat{}}
				b := newTestBackend(f)
				t.Cleanup(func() {
					if err := b.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
				var creates atomic.Int64
				second := make(chan struct{})
				f.handle = func(op int32, req []byte) (body []byte, code int32, done bool) {
					path, ok := created(op, req)
					if !ok {
						return n.handle(op, req)
					}
					switch creates.Add(1) {
					case 1:
						if errors.Is(why, errNoAnswer) { // else the server has deleted it
							n.add(path+"0000000000", zk.Stat{Czxid: 40, EphemeralOwner: theSession - 1})
						}
						b.mu.Lock()
						s := b.sessions[ttl]
						b.mu.Unlock()
						s.end(why)
						select { // no answer
						case <-second:
						case <-t.Context().Done():
						}
					case 2:
						close(second)
						n.add(path+"0000000001", zk.Stat{Czxid: 41, EphemeralOwner: theSession})
					}
					return createdReply(path+"0000000001", 41, len(n.paths())), 0, true
				}
				acquire := b.TryAcquire
				if how == "wait" {
					acquire = b.Acquire
				}
				req := backend.Request{Key: "key", Owner: strings.Repeat("0a", 16), TTL: ttl}
				g, err := acquire(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := n.paths(), []string{b.lockNode("key") + "/" + req.Owner + "-0000000001"}; !slices.Equal(got, want) || g.Token() != 41 {
					t.Errorf("token %d, nodes at the server %q, want %q", g.Token(), got, want)
				}
				if err := g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// created returns the path of the request to create that a multi begins with.
func created(op int32, req []byte) (path string, ok bool) {
	const create, head = 1, 4 + 1 + 4
	if op != opMulti || len(req) < head+4 || binary.BigEndian.Uint32(req) != create {
		return "", false
	}
	req = req[head:]
	return string(req[4 : 4+binary.BigEndian.Uint32(req)]), true
}

// createdReply returns the reply to a multi that creates a node and sets its parent.
func createdReply(path string, zxid int64, children int) []byte {
	result := func(b []byte, op byte) []byte { return append(b, 0, 0, 0, op, 0, 0, 0, 0, 0) } // not the end, no error
	b := result(nil, 1)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(path))), path...)
	b = result(b, 5)
	b = append(b, make([]byte, 8)...)
	b = binary.BigEndian.AppendUint64(b, uint64(zxid))
	b = append(b, make([]byte, 8+8+4+4+4+8+4)...)
	b = binary.BigEndian.AppendUint32(b, uint32(children))
	b = append(b, make([]byte, 8)...)
	return append(b, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff) // the end
}
