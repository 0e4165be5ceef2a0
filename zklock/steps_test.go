package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// nodes is what a fake server has below one lock's node.
type nodes struct {
	mu    sync.Mutex
	stats map[string]zk.Stat // by path
	lags  bool               // until it is told to sync
}

const (
	opDelete, opExists, opGet, opSync, opChildren, opMulti = 2, 3, 4, 9, 12, 14

	theSession = 7 // of the fake server
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

// newTestAttempt is one that a fake server knows the nodes of.
func newTestAttempt(t *testing.T, n *nodes) *attempt {
	t.Helper()
	const ttl = time.Minute
	f := newFakeServer(t, 0)
	f.handle = n.handle
	s := newTestSession(t, f, ttl)
	a := s.b.begin(backend.Request{Key: "key", Owner: strings.Repeat("0a", 16), TTL: ttl})
	s.use()
	a.s = s
	return a
}

// TestFind is about a request to create that was not answered: its node is found
// although the server lags behind, and nothing else remains of the attempt.
func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		owners []int64 // the sessions of the attempt's nodes
		lags   bool
		want   int // which of them the attempt has then, -1 for none
	}{
		"never created":                  {want: -1},
		"created":                        {owners: []int64{theSession}},
		"the server lags":                {owners: []int64{theSession}, lags: true},
		"in a session that was given up": {owners: []int64{theSession - 1}, want: -1},
		"there and in this one":          {owners: []int64{theSession - 1, theSession}, want: 1},
		"twice":                          {owners: []int64{theSession, theSession}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodes{stats: map[string]zk.Stat{}, lags: c.lags}
			a := newTestAttempt(t, n)
			want := []string(nil)
			for i, owner := range c.owners {
				path := fmt.Sprintf("%s/%s-%010d", a.dir, a.req.Owner, i)
				n.stats[path] = zk.Stat{Czxid: int64(40 + i), EphemeralOwner: owner}
				if i == c.want {
					want = []string{path}
				}
			}
			a.unsure = true
			if err := a.find(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := n.paths(); !slices.Equal(got, want) {
				t.Errorf("left at the server: %q, want %q", got, want)
			}
			if strings.Join(want, "") != a.path || a.unsure || a.path != "" && a.token != uint64(40+c.want) {
				t.Errorf("the attempt has %q with token %d, unsure: %v; want %q", a.path, a.token, a.unsure, want)
			}
		})
	}
}

// TestRenewLooks renews a grant whose watch was set on a connection that is lost: it
// says nothing any more.
func TestRenewLooks(t *testing.T) {
	const token = 42
	for name, c := range map[string]struct {
		stat *zk.Stat // of the node as it is now
		lost bool
	}{
		"there":           {stat: &zk.Stat{Czxid: token, EphemeralOwner: theSession}},
		"deleted":         {lost: true},
		"made again":      {stat: &zk.Stat{Czxid: token + 1, EphemeralOwner: theSession}, lost: true},
		"made by another": {stat: &zk.Stat{Czxid: token, EphemeralOwner: theSession + 1}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodes{stats: map[string]zk.Stat{}}
			a := newTestAttempt(t, n)
			a.path, a.token = a.dir+"/"+a.req.Owner+"-0000000000", token
			if c.stat != nil {
				n.stats[a.path] = *c.stat
			}
			g := &grant{a: a, s: a.s, path: a.path, token: token, over: make(chan struct{}),
				watch: &watched{stat: &zk.Stat{Czxid: token}, gone: make(chan zk.Event), connection: a.s.connection() - 1}}
			a.g = g
			err := g.Renew(t.Context(), time.Minute)
			if c.lost != errors.Is(err, backend.ErrLost) || !c.lost && err != nil {
				t.Errorf("want it lost: %v, got %v", c.lost, err)
			}
		})
	}
}

// TestUntilOfGrant bounds a grant by its session and by what was asked for.
func TestUntilOfGrant(t *testing.T) {
	const ttl = time.Minute
	a := newTestAttempt(t, &nodes{stats: map[string]zk.Stat{}})
	session := a.s.clock.until()
	for _, c := range []struct {
		what        string
		asked, want time.Time
	}{
		{"the session ends first", session.Add(time.Second), session},
		{"the grant does", session.Add(-ttl - time.Second), session.Add(-time.Second)},
	} {
		g := a.grant(c.asked, nil).(*grant)
		g.stop()
		if !g.Until().Equal(c.want) {
			t.Errorf("%s: until %v later than want", c.what, g.Until().Sub(c.want))
		}
	}
}

// TestWireCountsFromTheSend answers each packet after it was sent: what the answer
// proves is of before that.
func TestWireCountsFromTheSend(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	k := &clock{timeout: time.Minute, relay: 0}
	w := newWire(here, k, new(atomic.Int64), time.Minute)
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
			t.Errorf("%s counts from %v after it was sent", what, at.Sub(sent))
		}
	}
	sent := exchange(make([]byte, 48), packet(int32(0), int32(60_000), int64(77), int32(16), make([]byte, 16), byte(0)))
	after("the handshake", k.base, sent)
	sent = exchange(packet(int32(pingXid), int32(11)), packet(int32(pingXid), int64(5), int32(0)))
	after("a ping", k.touches[len(k.touches)-1].sent, sent)
	sent = exchange(packet(int32(1), int32(opMulti), int64(0)), packet(int32(1), int64(6), int32(0)))
	after("a change", k.change, sent)
	before := k.change
	exchange(packet(int32(2), int32(opMulti), int64(0)), packet(int32(2), int64(7), int32(-101)))
	if !k.change.Equal(before) {
		t.Error("a change that was refused counts")
	}
}

// TestGrantNeedsOwnPlace tells a waiter in one moment that the holder's node and its
// own are gone: whichever it hears first, it holds nothing.
func TestGrantNeedsOwnPlace(t *testing.T) {
	a := newTestAttempt(t, &nodes{stats: map[string]zk.Stat{}})
	a.path, a.token = a.dir+"/"+a.req.Owner+"-0000000001", 42
	q := queue([]string{strings.Repeat("0b", 16) + "-0000000000", base(a.path)})
	for range 100 {
		w := &wait{a: a, seen: map[string]watched{}}
		for i, c := range q {
			gone := make(chan zk.Event, 1)
			gone <- zk.Event{Type: zk.EventNodeDeleted, Path: a.dir + "/" + c.node}
			w.seen[c.node] = watched{stat: &zk.Stat{Czxid: int64(41 + i)}, gone: gone, connection: a.s.connection()}
		}
		if g, err := w.behind(t.Context(), q, 1); g != nil || err != nil {
			t.Fatalf("granted %v, %v with a place that is gone", g, err)
		}
	}
}

// TestSessionEndsUnderRequest ends the session of an attempt whose request to create
// is not answered: the attempt goes on in the next session, in which it has one node.
func TestSessionEndsUnderRequest(t *testing.T) {
	const ttl = time.Minute
	for _, why := range []error{errSessionOver, errSilent} {
		for _, how := range []string{"try", "wait"} {
			t.Run(why.Error()+"/"+how, func(t *testing.T) {
				t.Parallel()
				f, n := newFakeServer(t, 0), &nodes{stats: map[string]zk.Stat{}}
				b := newBackend(defaults())
				b.own, b.addrs, b.dial, b.dialTimeout = true, []string{f.listener.Addr().String()}, dialTCP(nil), 10*time.Second
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
						if errors.Is(why, errSilent) { // else the server has deleted it
							n.add(path+"0000000000", zk.Stat{Czxid: 40, EphemeralOwner: theSession - 1})
						}
						b.mu.Lock()
						s := b.sessions[ttl]
						b.mu.Unlock()
						s.finish(why)
						select { // no answer
						case <-second:
						case <-t.Context().Done():
						}
					case 2:
						close(second)
						n.add(path+"0000000001", zk.Stat{Czxid: 41, EphemeralOwner: theSession})
					}
					return createdAnswer(path+"0000000001", 41, len(n.paths())), 0, true
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
				if got, want := n.paths(), []string{b.node("key") + "/" + req.Owner + "-0000000001"}; !slices.Equal(got, want) || g.Token() != 41 {
					t.Errorf("token %d, at the server %q, want %q", g.Token(), got, want)
				}
				if err := g.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// created returns the path of a multi that begins with a request to create.
func created(op int32, req []byte) (path string, ok bool) {
	const create, head = 1, 4 + 1 + 4
	if op != opMulti || len(req) < head+4 || binary.BigEndian.Uint32(req) != create {
		return "", false
	}
	req = req[head:]
	return string(req[4 : 4+binary.BigEndian.Uint32(req)]), true
}

// createdAnswer is the answer to a multi that created a node and touched its parent.
func createdAnswer(path string, zxid int64, children int) []byte {
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
