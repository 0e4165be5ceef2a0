package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// place returns the place of an owner, who is a digit.
func place(owner string, seq int32) child {
	owner = strings.Repeat(owner, ownerLen)
	return child{node: fmt.Sprintf("%s-%010d", owner, seq), owner: owner, seq: seq}
}

// TestView: what is in front of a place is known if the place itself was read, and not if the
// lock's node was deleted and created again since, with sequence numbers from zero.
func TestView(t *testing.T) {
	v := &view{}
	var all []child
	for seq := range int32(20) {
		all = append(all, place("a", seq))
	}
	v.set(all)
	for _, c := range []struct {
		place      child
		front      []child
		far, known bool
	}{
		{all[0], nil, false, true},
		{all[3], all[:3], false, true},
		{all[19], all[17:19], true, true},
		{place("a", 20), nil, false, false},
		{place("b", 3), nil, false, false},
		{place("b", 30), nil, false, false},
	} {
		front, far, known := v.front(c.place)
		if known != c.known || known && (far != c.far || !slices.Equal(front, c.front)) {
			t.Errorf("in front of %v: got %v, far %v, known %v", c.place, front, far, known)
		}
	}
	v.remove(all[2])
	v.remove(all[2])
	v.remove(place("b", 1))
	if front, _, _ := v.front(all[4]); !slices.Equal(front, []child{all[0], all[1], all[3]}) {
		t.Errorf("after one place was removed: %v", front)
	}
}

// TestTurns: the first waiter of the process has the turn, whatever the order in which the
// waiters learn their places, and passes it on.
func TestTurns(t *testing.T) {
	s := &session{views: map[string]*view{}}
	a := &attempt{s: s, dir: "/interlock/key"}
	var ws []*waiter
	for _, seq := range []int32{5, 3, 9} {
		w := &waiter{a: a, place: place("a", seq)}
		s.enterView(w)
		ws = append(ws, w)
	}
	turns := func() (has []bool) {
		for _, w := range ws {
			has = append(has, isReady(w.turn))
		}
		return has
	}
	for i, c := range []struct {
		leaves int
		want   []bool
	}{{-1, []bool{true, true, false}}, {0, []bool{true, true, false}}, {1, []bool{true, true, true}}} {
		if c.leaves >= 0 {
			s.leaveView(ws[c.leaves], false)
		}
		if got := turns(); !slices.Equal(got, c.want) {
			t.Errorf("step %d: turns %v, want %v", i, got, c.want)
		}
	}
	s.leaveView(ws[2], true)
	if len(s.views) != 0 {
		t.Error("a view without a waiter is kept")
	}
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
		if path != b.lockNode("key") {
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
	b.opt.retention = time.Minute
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
	b.limits = limits{time.Second, time.Minute}
	b.mu.Lock()
	for _, name := range []string{"one", "held"} {
		b.noteUseLocked(b.lockNode(name))
	}
	b.mu.Unlock()
	if dirs := b.unused(time.Now(), 10); len(dirs) > 0 {
		t.Errorf("unused at once: %q", dirs)
	}
	dirs := b.unused(time.Now().Add(time.Minute), 10)
	if len(dirs) != 2 || !b.deleteAll(dirs) || len(deleted) != 2 || len(b.used) != 0 {
		t.Errorf("after the retention: %q, %d requests, %d remembered", dirs, len(deleted), len(b.used))
	}
	for _, d := range []time.Duration{time.Second, -time.Hour} {
		if err := WithRetention(d)(&options{}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("retention %v: got %v", d, err)
		}
	}
}
