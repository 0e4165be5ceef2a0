package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

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

// TestForeignSlots: another program puts a key of ours with slots that do not exist.
func TestForeignSlots(t *testing.T) {
	b := newBackend(t, server(t))
	req := requestShare("k", 1, 5)
	for _, slots := range []string{"-1", "5", "9223372036854775807,-9223372036854775808"} {
		key := b.folder("k") + place{req.Share, 1, req.Owner}.String()
		if _, err := b.client.Put(t.Context(), key, slots+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := try(t, b, requestShare("k", 2, 5)).Slots(); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("beside slots %s: got %v, want 0 and 1", slots, got)
		}
		if err := second(b.Break(t.Context(), "k", "")); err != nil {
			t.Fatal(err)
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
