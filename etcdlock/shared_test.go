package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
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
	if _, err := b.newAttempt(req).enqueueShared(t.Context(), s); err != nil {
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

// TestHolderThatDoesNothing: a client records the slots of holders before it that do not.
func TestHolderThatDoesNothing(t *testing.T) {
	b, dead := newBackend(t, server(t)), newBackend(t, server(t))
	for _, acquire := range []func(context.Context, backend.Request) (backend.Grant, error){b.TryAcquire, b.Acquire} {
		w := try(t, dead, request("k", time.Minute))
		enqueued(t, dead, requestShare("k", 2, 5))
		release(t, w)
		g, err := acquire(t.Context(), requestShare("k", 1, 5))
		if err != nil {
			t.Fatal(err)
		}
		if got := g.(*grant).Slots(); !slices.Equal(got, []int{2}) {
			t.Errorf("slots %v, want the one after those of the first holder", got)
		}
		if i := inspect(t, b, "k"); len(i.Others) != 1 || !slices.Equal(i.Holder.Slots, []int{0, 1}) {
			t.Errorf("want slots 0 and 1 for the first of two holders, got %+v", i)
		}
		if _, err := b.TryAcquire(t.Context(), requestShare("k", 3, 5)); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("more than is free: %v", err)
		}
		if h, err := b.Break(t.Context(), "k", ""); err != nil || h == nil || len(h.Slots) != 2 || !free(t, b, "k")() {
			t.Errorf("Break: want all to end and the first returned, got %+v, %v", h, err)
		}
	}
}

// TestLateRecord executes transactions that record slots when the queue has changed.
func TestLateRecord(t *testing.T) {
	b := newBackend(t, server(t))
	w := try(t, b, request("k", time.Minute))
	reqs := []backend.Request{requestShare("k", 1, 4), requestShare("k", 2, 4)}
	for _, req := range reqs {
		enqueued(t, b, req)
	}
	read := func() queue {
		r, err := b.client.Get(t.Context(), b.folder("k"), clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		return newQueue(b.folder("k"), r.Kvs)
	}
	release(t, w)
	old := read()
	first := queue{folder: old.folder, keys: slices.Clone(old.keys[:1])}
	if err := b.recordSlots(t.Context(), &first); err != nil { // as a client with an older copy
		t.Fatal(err)
	}
	late := queue{folder: old.folder, keys: slices.Clone(old.keys)}
	if err := b.recordSlots(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	if len(late.unrecorded()) != 1 || !slices.Equal(late.keys[0].slots, []int{0}) {
		t.Errorf("want the slots of the first key read, got %+v", late.keys[0])
	}
	if err := b.Abandon(t.Context(), reqs[0]); err != nil {
		t.Fatal(err)
	}
	if err := b.recordSlots(t.Context(), &late); err != nil {
		t.Fatal(err)
	}
	now := read()
	if len(now.keys) != 1 || !slices.Equal(now.keys[0].slots, []int{1, 2}) {
		t.Errorf("want the second key alone, with slots 1 and 2, got %+v", now.keys)
	}
	if err := b.recordSlots(t.Context(), &queue{folder: old.folder, keys: old.keys}); err != nil {
		t.Fatal(err)
	}
	if again := read(); len(again.keys) != 1 || again.keys[0].modified != now.keys[0].modified {
		t.Errorf("a transaction with a copy from before changed the keys: %+v", again.keys)
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

// TestForeignKeys: other programs put keys that look as some of ours to the servers.
func TestForeignKeys(t *testing.T) {
	b := newBackend(t, server(t))
	c := client(t, server(t))
	for what, key := range map[string]string{
		"a leader that proclaims": Folder(t.Name(), "k") + "694d",
		"permits of another":      Folder(t.Name(), "k") + "%p7-none",
	} {
		for range 2 {
			if _, err := c.Put(t.Context(), key, downgraded+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		var next []<-chan outcome
		for _, req := range []backend.Request{requestShare("k", 1, 3), requestShare("k", 3, 3)} {
			if _, err := b.TryAcquire(t.Context(), req); !errors.Is(err, backend.ErrLocked) {
				t.Errorf("%s: TryAcquire: %v", what, err)
			}
			next = append(next, waiting(t, t.Context(), b, requestShare("k", req.Share.Weight, 3)))
		}
		if i := inspect(t, b, "k"); i.Holder == nil || !i.Holder.Foreign || len(i.Waiters) != 2 {
			t.Errorf("%s: %+v", what, i)
		}
		if _, err := c.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		for _, ch := range next {
			release(t, granted(t, ch))
		}
	}
}

// TestDowngrade checks the refusals of a downgrade, and a program that knows no shares.
func TestDowngrade(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, request("k", time.Minute))
	permits := waiting(t, t.Context(), b, requestShare("k", 2, 3))
	if err := g.Downgrade(t.Context()); !errors.Is(err, backend.ErrInvalid) || backend.OutcomeUnknown(err) {
		t.Errorf("with permits that wait: want CapacityError, got %v", err)
	}
	if i := inspect(t, b, "k"); !i.Holder.Share.Exclusive() {
		t.Errorf("after a refused downgrade: %+v", i)
	}
	release(t, g)
	p := granted(t, permits).(*grant)
	if err := p.Downgrade(t.Context()); err != nil || inspect(t, b, "k").Holder.Share != p.a.req.Share {
		t.Errorf("of permits: %v", err)
	}
	release(t, p)

	g = try(t, b, request("k", time.Minute))
	s, err := concurrency.NewSession(client(t, server(t)), concurrency.WithTTL(10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := concurrency.NewMutex(s, Folder(t.Name(), "k")[:len(Folder(t.Name(), "k"))-1])
	r := waiting(t, t.Context(), b, reader("k"))
	for range 2 {
		if err := g.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rg := granted(t, r)
	if rg.Token() <= g.Token() {
		t.Errorf("token %d of a reader after %d", rg.Token(), g.Token())
	}
	if err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("TryLock of a Mutex of package concurrency beside readers: %v", err)
	}
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("Renew after Downgrade: %v", err)
	}
	for _, req := range []backend.Request{requestShare("k", 1, 3), requestShare("k", 3, 3)} {
		for what, acquire := range map[string]func(context.Context, backend.Request) (backend.Grant, error){"try": b.TryAcquire, "wait": b.Acquire} {
			if _, err := acquire(t.Context(), req); !errors.Is(err, backend.ErrInvalid) || backend.OutcomeUnknown(err) || registered(b, req) {
				t.Errorf("%s %v beside readers: want CapacityError, got %v", what, req.Share, err)
			}
		}
	}
	release(t, rg)
	// With the former writer as the only reader.
	if _, err := b.Acquire(t.Context(), requestShare("k", 1, 3)); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("permits beside a former writer: %v", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- m.Lock(t.Context()) }()
	eventually(t, "the Mutex does not wait", func() bool { return len(inspect(t, b, "k").Waiters) == 1 })
	if _, err := b.TryAcquire(t.Context(), reader("k")); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("TryAcquire of a reader behind a waiting Mutex: %v", err)
	}
	release(t, g)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := g.Downgrade(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Downgrade after Release: want ErrLost, got %v", err)
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	g = try(t, b, request("k", time.Minute))
	if err := second(b.Break(t.Context(), "k", "")); err != nil {
		t.Fatal(err)
	}
	if err := g.Downgrade(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Downgrade of a broken grant: want ErrLost, got %v", err)
	}
}

// TestRaceOfCapacities: attempts with two capacities at once. The keys of the folder never have
// both, and one that is refused leaves nothing.
func TestRaceOfCapacities(t *testing.T) {
	bs := []*Backend{newBackend(t, server(t)), newBackend(t, server(t))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		q := newQueue(bs[0].folder("k"), nil)
		for r := range bs[0].client.Watch(ctx, q.folder, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
			if r.Created {
				close(ready)
			}
			for _, e := range r.Events {
				if e.Type == clientv3.EventTypeDelete {
					q.remove(string(e.Kv.Key))
				} else {
					q.add(e.Kv)
				}
			}
			for _, c := range q.keys {
				if other, conflict := q.conflict(c.share); conflict {
					t.Errorf("contenders for %v and %v", c.share, other)
				}
			}
		}
	})
	<-ready
	var granted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		b := bs[i%2]
		all.Go(func() {
			for turn := range 8 {
				acquire := b.Acquire
				if turn%2 == i/2%2 {
					acquire = b.TryAcquire
				}
				g, err := acquire(t.Context(), requestShare("k", 1, 2*(i/2%2)))
				switch {
				case err == nil:
					granted.Add(1)
					release(t, g)
				case errors.Is(err, backend.ErrInvalid) && !backend.OutcomeUnknown(err):
					refused.Add(1)
				case !errors.Is(err, backend.ErrLocked):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	cancel()
	watching.Wait()
	if granted.Load() == 0 || !free(t, bs[0], "k")() {
		t.Errorf("%d grants, %d refusals, and %+v is left", granted.Load(), refused.Load(), inspect(t, bs[0], "k"))
	}
}

// TestSlotsAreDistinct: workers of several processes acquire permits and give up at random
// times.
func TestSlotsAreDistinct(t *testing.T) {
	const capacity = 4
	bs := []*Backend{newBackend(t, server(t)), newBackend(t, server(t)), newBackend(t, server(t))}
	var owned [capacity]atomic.Int64
	var grants atomic.Int64
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			b := bs[i%3]
			for turn := range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if turn%3 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(1+i)*time.Millisecond)
				}
				req := requestShare("k", 1+(i+turn)%3, capacity)
				g, err := b.Acquire(ctx, req)
				cancel()
				if err != nil {
					if err := b.Abandon(t.Context(), req); err != nil {
						t.Error(err)
					}
					continue
				}
				grants.Add(1)
				slots := g.(*grant).Slots()
				if len(slots) != req.Share.Weight {
					t.Errorf("slots %v of %v", slots, req.Share)
				}
				for _, n := range slots {
					if owned[n].Add(1) != 1 {
						t.Errorf("slot %d has two holders", n)
					}
				}
				for _, n := range slots {
					owned[n].Add(-1)
				}
				release(t, g)
			}
		})
	}
	all.Wait()
	if grants.Load() < 12*6 || !free(t, bs[0], "k")() {
		t.Errorf("%d grants, and %+v is left", grants.Load(), inspect(t, bs[0], "k"))
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

// TestSlotsAreRecordedAgain loses the request that records the slots of a waiter, or its reply.
func TestSlotsAreRecordedAgain(t *testing.T) {
	b, n := lossy(t)
	other := newBackend(t, server(t), WithPrefix(t.Name()))
	for _, lose := range []string{"request", "reply"} {
		for range 2 {
			w := try(t, other, request("k", time.Minute))
			next := waiting(t, t.Context(), b, requestShare("k", 2, 3))
			n.set(lose)
			release(t, w)
			time.Sleep(20 * time.Millisecond)
			n.set("")
			g := granted(t, next)
			if i := inspect(t, b, "k"); !slices.Equal(g.(*grant).Slots(), []int{0, 1}) || len(i.Others) != 0 || !slices.Equal(i.Holder.Slots, []int{0, 1}) {
				t.Errorf("%s lost: slots %v, %+v", lose, g.(*grant).Slots(), i)
			}
			release(t, g)
		}
		w := try(t, other, request("k", time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		req := requestShare("k", 2, 3)
		next := waiting(t, ctx, b, req)
		n.set(lose)
		release(t, w)
		time.AfterFunc(10*time.Millisecond, cancel)
		if o := <-next; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, backend.ErrUncertain) {
			t.Errorf("%s lost and cancelled: %v, %v", lose, o.g, o.err)
		}
		n.set("")
		if err := b.Abandon(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if lose == "request" {
			if done, err := n.late(); err != nil || done {
				t.Errorf("slots are recorded after Abandon: %v, %v", done, err)
			}
		}
		if !free(t, b, "k")() {
			t.Errorf("%s lost: not free after Abandon", lose)
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
