package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/interlock-go/lock/backend"
)

func requestShare(key string, weight, capacity int) backend.Request {
	req := request(key, time.Minute)
	req.Share = backend.Share{Weight: weight, Capacity: capacity}
	return req
}

func reader(key string) backend.Request { return requestShare(key, 1, 0) }

// enqueued puts the key of an attempt into the queue, and does nothing more, as a process that
// was stopped or killed.
func enqueued(t *testing.T, b *Backend, req backend.Request) {
	t.Helper()
	s, err := b.session(t.Context(), req.TTL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.leave)
	if _, err := b.newAttempt(req).enqueue(t.Context(), s, false); err != nil {
		t.Fatal(err)
	}
}

func inspect(t *testing.T, b *Backend, key string) backend.Info {
	t.Helper()
	i, err := b.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// countTxns returns a backend and the number of its transactions.
func countTxns(t *testing.T) (*Backend, *atomic.Int64) {
	var n atomic.Int64
	return intercepted(t, func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		n.Add(1)
		return invoke(ctx, method, req, reply, cc, opts...)
	}), &n
}

// TestRequestsOfShares: a reader beside readers and permits of a free lock are one request, as
// an exclusive attempt.
func TestRequestsOfShares(t *testing.T) {
	b, n := countTxns(t)
	release(t, try(t, b, request("k", time.Minute))) // the lease exists
	for what, acquire := range map[string]func(context.Context, backend.Request) (backend.Grant, error){"try": b.TryAcquire, "wait": b.Acquire} {
		for _, c := range []struct {
			req  backend.Request
			want int64
		}{
			{reader("r" + what), 1}, {reader("r" + what), 1}, {reader("r" + what), 1},
			{requestShare("p"+what, 1, 3), 1}, {requestShare("p"+what, 1, 3), 2}, {request("k"+what, time.Minute), 1},
		} {
			before := n.Load()
			if _, err := acquire(t.Context(), c.req); err != nil {
				t.Fatal(err)
			}
			if got := n.Load() - before; got != c.want {
				t.Errorf("%s, %v: %d requests, want %d", what, c.req.Share, got, c.want)
			}
		}
	}
}

// TestManyHolders has more holders than a transaction may have operations.
func TestManyHolders(t *testing.T) {
	const capacity = 150
	bs := []*Backend{newBackend(t, server(t)), newBackend(t, server(t))}
	for _, share := range []backend.Share{backend.Reader, {Weight: 1, Capacity: capacity}} {
		w := try(t, bs[0], request("k", time.Minute))
		var next []<-chan outcome
		for i := range capacity {
			next = append(next, waiting(t, t.Context(), bs[i%2], requestShare("k", share.Weight, share.Capacity)))
		}
		behind := waiting(t, t.Context(), bs[0], request("k", time.Minute))
		release(t, w)
		taken := map[int]bool{}
		for _, ch := range next {
			for _, n := range granted(t, ch).(*grant).Slots() {
				taken[n] = true
			}
		}
		if len(taken) != share.Capacity {
			t.Errorf("%v: %d slots for %d holders", share, len(taken), capacity)
		}
		if _, err := bs[1].TryAcquire(t.Context(), requestShare("k", share.Weight, share.Capacity)); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("%v: TryAcquire behind a waiter: %v", share, err)
		}
		if i := inspect(t, bs[0], "k"); len(i.Others) != capacity-1 || len(i.Waiters) != 1 {
			t.Errorf("%v: %d others and %d waiters", share, len(i.Others), len(i.Waiters))
		}
		if h, err := bs[0].Break(t.Context(), "k", ""); err != nil || h == nil {
			t.Fatal(h, err)
		}
		release(t, granted(t, behind))
	}
	// An attempt that is sent twice finds its grant behind many others.
	for range firstRead {
		try(t, bs[0], reader("k"))
	}
	req := reader("k")
	if g, again := try(t, bs[0], req), try(t, bs[0], req); g.token != again.token {
		t.Errorf("sent twice: tokens %d and %d", g.token, again.token)
	}
	// So does one with many readers and a downgraded holder before it.
	if err := second(bs[0].Break(t.Context(), "k", "")); err != nil {
		t.Fatal(err)
	}
	if err := try(t, bs[0], request("k", time.Minute)).Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range firstRead + 1 {
		try(t, bs[1], reader("k"))
	}
}

// TestRaceOfCapacities: readers and permits of two capacities at once. Those that hold the lock at a
// time do so in the order of their tokens, with distinct slots.
func TestRaceOfCapacities(t *testing.T) {
	bs := []*Backend{newBackend(t, server(t)), newBackend(t, server(t))}
	var mu sync.Mutex
	held := map[*grant]backend.Share{}
	enter := func(g *grant, s backend.Share) {
		mu.Lock()
		defer mu.Unlock()
		held[g] = s
		var queue []backend.Share
		var slots []int
		for _, g := range slices.SortedFunc(maps.Keys(held), func(a, b *grant) int { return cmp.Compare(a.Token(), b.Token()) }) {
			queue, slots = append(queue, held[g]), append(slots, g.Slots()...)
		}
		slices.Sort(slots)
		if backend.Admitted(queue) < len(queue) || len(slices.Compact(slices.Clone(slots))) < len(slots) {
			t.Errorf("held together: %v, with the slots %v", queue, slots)
		}
	}
	shares := []backend.Share{backend.Reader, {Weight: 1, Capacity: 2}, {Weight: 2, Capacity: 3}, {Weight: 1, Capacity: 4}}
	var all sync.WaitGroup
	var granted atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for turn := range 12 {
				b, s := bs[i%2], shares[(i+turn)%len(shares)]
				acquire := b.Acquire
				if turn%4 == i/2%4 {
					acquire = b.TryAcquire
				}
				g, err := acquire(t.Context(), requestShare("k", s.Weight, s.Capacity))
				if errors.Is(err, backend.ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				granted.Add(1)
				enter(g.(*grant), s)
				mu.Lock()
				delete(held, g.(*grant))
				mu.Unlock()
				release(t, g)
			}
		})
	}
	all.Wait()
	if granted.Load() < 8*9 || !free(t, bs[0], "k")() {
		t.Errorf("%d grants, and %+v is left", granted.Load(), inspect(t, bs[0], "k"))
	}
}

// TestLostRepliesOfShares loses the first reply of each request to acquire.
func TestLostRepliesOfShares(t *testing.T) {
	b, n := lossy(t)
	for _, req := range []backend.Request{reader("r"), requestShare("p", 2, 3)} {
		req2 := req
		req2.Owner = request("", 0).Owner
		for _, req := range []backend.Request{req, req2} {
			req.Share.Weight = 1
			n.set("reply")
			time.AfterFunc(10*time.Millisecond, func() { n.set("") })
			g := try(t, b, req)
			if want := fmt.Sprint(req.Share.Weight * min(req.Share.Capacity, 1)); fmt.Sprint(len(g.Slots())) != want {
				t.Errorf("%v: slots %v", req.Share, g.Slots())
			}
			if i := inspect(t, b, req.Key); i.Holder.Token != g.Token() && (len(i.Others) != 1 || i.Others[0].Token != g.Token()) {
				t.Errorf("%v: token %d, %+v", req.Share, g.Token(), i)
			}
		}
		if i := inspect(t, b, req.Key); len(i.Others) != 1 || len(i.Waiters) != 0 {
			t.Errorf("%v: %+v", req.Share, i)
		}
	}
}

// TestReadersNeedNoView: a process that has a view uses it for the shares that must wait.
func TestReadersNeedNoView(t *testing.T) {
	b, n := countTxns(t)
	w := try(t, b, request("k", time.Minute))
	next := waiting(t, t.Context(), b, reader("k"))
	release(t, w)
	granted(t, next)
	eventually(t, "the view has no readers only", func() bool {
		b.mu.Lock()
		v := b.views[b.folder("k")]
		b.mu.Unlock()
		return !v.serves(backend.Reader)
	})
	before := n.Load()
	if _, err := b.Acquire(t.Context(), reader("k")); err != nil || n.Load() != before+1 {
		t.Errorf("a reader beside a reader: %d requests, %v", n.Load()-before, err)
	}
	waits := waiting(t, t.Context(), b, request("k", time.Minute))
	if b.followedQueue(b.folder("k"), backend.Reader) == nil {
		t.Error("a reader behind a waiter: want the view, which has the writer")
	}
	before = n.Load()
	behind := waiting(t, t.Context(), b, reader("k"))
	if got := n.Load() - before; got != 1 {
		t.Errorf("a reader behind a waiting writer: %d requests, want 1", got)
	}
	if err := second(b.Break(t.Context(), "k", "")); err != nil {
		t.Fatal(err)
	}
	release(t, granted(t, waits))
	release(t, granted(t, behind))
}

// TestSharedWaiterIsPutBack deletes the keys of waiters, and the lease of them: they put others.
func TestSharedWaiterIsPutBack(t *testing.T) {
	holder, b := newBackend(t, server(t)), newBackend(t, server(t))
	for what, remove := range map[string]func() error{
		"lease": func() error { return second(b.client.Revoke(t.Context(), b.Leases()[0])) },
		"keys": func() error {
			return second(b.client.Delete(t.Context(), b.folder("k")+permits, clientv3.WithPrefix()))
		},
	} {
		g := try(t, holder, request("k", time.Minute))
		var next []<-chan outcome
		for range 2 {
			req := requestShare("k", 1, 2)
			req.TTL = 15 * time.Second
			next = append(next, waiting(t, t.Context(), b, req))
		}
		before := inspect(t, b, "k").Waiters
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		eventually(t, what+": want the waiters in the queue again", func() bool { return len(inspect(t, b, "k").Waiters) == 2 })
		release(t, g)
		taken := map[int]bool{}
		for _, ch := range next {
			n := granted(t, ch)
			if n.Token() <= g.Token() {
				t.Errorf("%s: token %d after %d", what, n.Token(), g.Token())
			}
			taken[n.(*grant).Slots()[0]] = true
		}
		if len(taken) != 2 || len(before) != 2 {
			t.Errorf("%s: slots %v", what, taken)
		}
		if err := second(b.Break(t.Context(), "k", "")); err != nil {
			t.Fatal(err)
		}
	}
}
