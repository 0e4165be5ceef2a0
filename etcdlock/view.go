package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// lingering is how long a view goes on without a waiter: the next one is likely to
// come soon where there was one.
const lingering = 2 * time.Second

// view is a copy of one lock's queue, kept up to date by a watch of its folder. All
// of a process that wait for the lock share it. The event that removes the first
// key is itself the news for the next, without a further request.
type view struct {
	b      *Backend
	folder string
	stop   context.CancelFunc

	users int // under Backend.mu
	timer *time.Timer

	mu      sync.Mutex
	synced  bool
	copied  int64 // revision in which the copy was made
	seen    int64 // revision up to which it is known to be right
	queue   []member
	members map[string]int64 // revision in which a key was created
	leases  map[string]int   // keys of each lease: the contending processes
	waiters map[string]*waiter
}

type member struct {
	revision int64
	kv       *mvccpb.KeyValue
}

// waiter is an attempt that waits by the view.
type waiter struct {
	key      string
	revision int64
	told     chan bool            // once: it is the first, or it is gone
	locked   func(backend.Holder) // tells, once, who holds the lock
}

// viewFor returns the view of a folder, joined, if the attempt shall wait by it:
// when there are too few keys for too many processes, or a view that says so. Nil
// means that somebody has to look.
func (b *Backend) viewFor(folder string, keys int64) *view {
	b.mu.Lock()
	v := b.views[folder]
	b.mu.Unlock()
	if b.opt.viewMax == 0 || (v == nil && keys > int64(b.opt.viewMax)) {
		return nil
	}
	if v != nil {
		v.mu.Lock()
		crowded := len(v.leases) > b.opt.viewMax
		v.mu.Unlock()
		if crowded {
			return nil
		}
	}
	return b.joinView(folder)
}

// joinView returns the view of a folder, begun if there is none.
func (b *Backend) joinView(folder string) *view {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.views[folder]
	if v == nil {
		ctx, cancel := context.WithCancel(b.life)
		v = &view{b: b, folder: folder, stop: cancel, waiters: map[string]*waiter{}}
		b.views[folder] = v
		b.wg.Add(1) // the caller has entered, so closing waits
		go func() {
			defer b.wg.Done()
			v.run(ctx)
		}()
	}
	v.users++
	if v.timer != nil {
		v.timer.Stop()
	}
	return v
}

// leave ends the wait of w, which joined, and with the last of them the view, a
// little later.
func (v *view) leave(w *waiter) {
	v.mu.Lock()
	delete(v.waiters, w.key)
	v.mu.Unlock()
	b := v.b
	b.mu.Lock()
	defer b.mu.Unlock()
	v.users--
	if v.users > 0 {
		return
	}
	if v.timer == nil {
		v.timer = time.AfterFunc(lingering, v.retire)
	} else {
		v.timer.Reset(lingering)
	}
}

func (v *view) retire() {
	b := v.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if v.users == 0 && b.views[v.folder] == v {
		delete(b.views, v.folder)
		v.stop()
	}
}

// enter begins the wait of w.
func (v *view) enter(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiters[w.key] = w
	if v.synced && v.seen >= w.revision {
		v.tell(w)
	}
}

// tell looks whether w's wait is over, by a copy that has seen its key put.
func (v *view) tell(w *waiter) {
	switch {
	case v.members[w.key] != w.revision:
		w.tell(false)
	case v.queue[0].revision == w.revision:
		w.tell(true)
	default:
		w.locked(v.b.holder(v.folder, v.queue[0].kv))
		return
	}
	delete(v.waiters, w.key)
}

func (w *waiter) tell(first bool) {
	select {
	case w.told <- first:
	default:
	}
}

// run keeps the copy up to date until ctx ends. A watch that is lost, or that fell
// behind a compaction, is begun anew with a fresh copy.
func (v *view) run(ctx context.Context) {
	v.b.watch(ctx, v.folder, []clientv3.OpOption{clientv3.WithPrefix()}, v.sync, v.apply)
}

// sync makes the copy anew. The watch was there before, so no event is missed.
func (v *view) sync(ctx context.Context) error {
	r, err := v.b.client.Get(ctx, v.folder, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.synced, v.copied, v.seen = true, r.Header.Revision, r.Header.Revision
	v.queue, v.members, v.leases = nil, map[string]int64{}, map[string]int{}
	for _, kv := range r.Kvs {
		v.add(kv)
	}
	for _, w := range v.waiters {
		if v.seen >= w.revision {
			v.tell(w)
		}
	}
	return nil
}

// apply brings the copy up to date. Events of one revision come together or in
// parts, so only those that the copy was made with are left out.
func (v *view) apply(events []*clientv3.Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range events {
		if e.Kv.ModRevision <= v.copied {
			continue
		}
		if e.Type == clientv3.EventTypeDelete {
			v.remove(string(e.Kv.Key))
		} else {
			v.add(e.Kv)
		}
		v.seen = max(v.seen, e.Kv.ModRevision)
		if w := v.waiters[string(e.Kv.Key)]; w != nil && v.seen >= w.revision {
			v.tell(w)
		}
	}
	if len(v.queue) > 0 {
		if w := v.waiters[string(v.queue[0].kv.Key)]; w != nil && v.seen >= w.revision {
			v.tell(w)
		}
	}
	return true
}

func (v *view) add(kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	if _, ok := v.members[key]; ok {
		return // put again, under another lease
	}
	i, _ := slices.BinarySearchFunc(v.queue, kv.CreateRevision, byRevision)
	v.queue = slices.Insert(v.queue, i, member{kv.CreateRevision, kv})
	v.members[key] = kv.CreateRevision
	if lease, _, ok := parsePlace(key[len(v.folder):]); ok {
		v.leases[lease]++
	}
}

func (v *view) remove(key string) {
	r, ok := v.members[key]
	if !ok {
		return
	}
	if i, found := slices.BinarySearchFunc(v.queue, r, byRevision); found {
		for ; i < len(v.queue) && v.queue[i].revision == r; i++ { // a transaction of others may create several at once
			if string(v.queue[i].kv.Key) == key {
				v.queue = slices.Delete(v.queue, i, i+1)
				break
			}
		}
	}
	delete(v.members, key)
	if lease, _, ok := parsePlace(key[len(v.folder):]); ok {
		if v.leases[lease]--; v.leases[lease] <= 0 {
			delete(v.leases, lease)
		}
	}
}

func byRevision(m member, revision int64) int {
	switch {
	case m.revision < revision:
		return -1
	case m.revision > revision:
		return 1
	}
	return 0
}
