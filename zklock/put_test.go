package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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

// newTestEntry returns an attempt in a session of a fake server with these nodes.
func newTestEntry(t *testing.T, n *nodes) *entry {
	t.Helper()
	f := newFakeServer(t, 0)
	f.handle = n.handle
	ss := newTestSession(t, f, time.Minute)
	e, err := ss.s.enter(t.Context(), ss, ss.s.lockNode("key"), strings.Repeat("0a", 16))
	if err != nil {
		t.Fatal(err)
	}
	return e
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
			e := newTestEntry(t, n)
			want := []string(nil)
			for i, owner := range c.owners {
				path := fmt.Sprintf("%s/%s-%010d", e.dir, e.owner, c.first+i)
				n.stats[path] = zk.Stat{Czxid: int64(40 + i), EphemeralOwner: owner}
				if i == c.want {
					want = []string{path}
				}
			}
			e.unknown = true
			if err := e.resolve(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := n.paths(); !slices.Equal(got, want) {
				t.Errorf("nodes at the server: %q, want %q", got, want)
			}
			if strings.Join(want, "") != e.path || e.unknown || e.path != "" && e.token != uint64(40+c.want) {
				t.Errorf("the attempt has %q with token %d, unknown: %v; want %q", e.path, e.token, e.unknown, want)
			}
		})
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
						s, _ := b.svc.pin(ttl)
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
				if got, want := n.paths(), []string{b.svc.lockNode("key") + "/" + req.Owner + "-0000000001"}; !slices.Equal(got, want) || g.Token() != 41 {
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

// TestContainerOfFailedAttempt: an attempt that creates the node of a lock, and then nothing
// below it, deletes that node: the server would never.
func TestContainerOfFailedAttempt(t *testing.T) {
	const createContainer = 19
	f := newFakeServer(t, 0)
	b := newTestBackend(f)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	ctx, cancel := context.WithCancel(t.Context())
	created, deleted := false, make(chan string, 1)
	f.handle = func(op int32, req []byte) (body []byte, code int32, done bool) {
		switch {
		case op == opMulti && !created:
			return nil, int32(-101), true // no node
		case op == createContainer:
			created = true
			cancel() // the caller gives up
			return append([]byte{0, 0, 0, 1}, '/'), 0, true
		case op == opChildren:
			return make([]byte, 4+68), 0, true // none
		case op == opDelete:
			deleted <- string(req[4 : len(req)-4])
			return nil, 0, true
		}
		return nil, 0, false
	}
	req := backend.Request{Key: "key", Owner: strings.Repeat("0a", 16), TTL: time.Minute}
	_, err := b.Acquire(ctx, req)
	if !errors.Is(err, backend.ErrUncertain) {
		t.Fatalf("want an uncertain error, so that the attempt is abandoned; got %v", err)
	}
	if err := b.Abandon(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	select {
	case path := <-deleted:
		if path != b.svc.lockNode("key") {
			t.Errorf("deleted %q", path)
		}
	default:
		t.Error("the node of the lock remains")
	}
}

// TestRetention: nodes of locks are deleted when this client has not used them for the
// retention, those that have children are kept, and the client forgets both.
func TestRetention(t *testing.T) {
	f := newFakeServer(t, 0)
	b := newTestBackend(f)
	b.svc.opt.retention = time.Minute
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	deleted := make(chan string, 10)
	f.handle = func(op int32, req []byte) (body []byte, code int32, done bool) {
		if op != opDelete {
			return nil, 0, false
		}
		path := string(req[4 : len(req)-4])
		deleted <- path
		if strings.HasSuffix(path, "held") {
			code = -111 // not empty
		}
		return nil, code, true
	}
	b.svc.limits = limits{time.Second, time.Minute}
	b.svc.mu.Lock()
	for _, name := range []string{"one", "held"} {
		b.svc.noteUseLocked(b.svc.lockNode(name))
	}
	b.svc.mu.Unlock()
	b.svc.deleteBefore(time.Now().Add(-time.Minute))
	if len(deleted) > 0 {
		t.Error("deleted at once")
	}
	b.svc.deleteBefore(time.Now())
	if len(deleted) != 2 || len(b.svc.used) != 0 {
		t.Errorf("after the retention: %d requests, %d remembered", len(deleted), len(b.svc.used))
	}
	for _, d := range []time.Duration{time.Second, -time.Hour} {
		if err := WithRetention(d)(&options{}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("retention %v: got %v", d, err)
		}
	}
}
