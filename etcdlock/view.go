package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// viewIdleTimeout is how long a view stays without a waiter: the next one often comes
// soon.
const viewIdleTimeout = 2 * time.Second

// A view keeps a copy of the queue of one lock by a watch, for all waiters of the
// process. An event is the grant of the waiters that hold the lock in the copy after it, such
// as the next one when the first key is deleted.
type view struct {
	b      *Backend
	folder string
	cancel context.CancelFunc

	recording chan struct{} // capacity 1: an attempt records slots

	users int // guarded by Backend.mu
	idle  *time.Timer

	mu      sync.Mutex // guards the fields below
	read    int64      // revision in which the copy was read, zero before
	current int64      // revision up to which the copy is current
	queue   queue
	waiters map[string]*waiter // by key
}

// A waiter is an attempt that waits by a view.
type waiter struct {
	key          string
	revision     int64                // that created key
	turn         chan bool            // capacity 1, one value: true when key holds the lock, false when it is gone
	reportHolder func(backend.Holder) // only its first call has an effect
}

// viewFor returns the view by which the attempt waits, which it has joined. It returns
// nil if too many processes contend, and then the predecessor if it is known.
func (a *attempt) viewFor(ctx context.Context, p queuePlace) (v *view, predecessor string) {
	b, most := a.b, a.b.opt.queueView
	if most == 0 {
		return nil, ""
	}
	if p.others > int64(most) {
		select { // one attempt counts at a time, and the next ones join the view that it began
		case b.counting <- struct{}{}:
			defer func() { <-b.counting }()
		case <-ctx.Done():
			return nil, ""
		}
	}
	b.mu.Lock()
	v = b.views[a.folder]
	b.mu.Unlock()
	if v != nil && v.processes() > most {
		return nil, ""
	}
	if v == nil && p.others > int64(most) {
		processes, predecessor, err := a.countProcesses(ctx, p)
		if err != nil || processes > most {
			return nil, predecessor
		}
	}
	return b.joinView(a.folder), ""
}

// followedQueue returns the view of a folder, which it has joined, if there is one by which an
// attempt for a share need not read the folder. The attempt learns of its position from the view.
func (b *Backend) followedQueue(folder string, s backend.Share) *view {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.views[folder]
	if v == nil || !v.serves(s) {
		return nil
	}
	v.users++
	v.idle.Stop()
	return v
}

// joinView returns the view of a folder, and begins it if there is none.
func (b *Backend) joinView(folder string) *view {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.views[folder]
	if v == nil {
		ctx, cancel := context.WithCancel(b.ctx)
		v = &view{b: b, folder: folder, cancel: cancel, recording: make(chan struct{}, 1), waiters: map[string]*waiter{}}
		v.idle = time.AfterFunc(viewIdleTimeout, v.endIfIdle)
		b.views[folder] = v
		b.wg.Add(1) // Close still waits for the request of the caller
		go func() {
			defer b.wg.Done()
			// If the watch breaks or is behind a compaction, it begins again with a new copy.
			b.watch(ctx, folder, []clientv3.OpOption{clientv3.WithPrefix()}, v.readQueue, v.apply)
		}()
	}
	v.users++
	v.idle.Stop()
	return v
}

// enter begins the wait of w.
func (v *view) enter(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.waiters[w.key] = w
	v.checkLocked(w, len(v.queue.holders()))
}

// remove ends the wait of w.
func (v *view) remove(w *waiter) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.waiters, w.key)
}

// leave ends the use of a view by one that has joined it. The last one starts its idle timeout.
func (v *view) leave() {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	if v.users--; v.users == 0 {
		v.idle.Reset(viewIdleTimeout)
	}
}

func (v *view) endIfIdle() {
	b := v.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if v.users == 0 && b.views[v.folder] == v {
		delete(b.views, v.folder)
		v.cancel()
	}
}

// serves reports whether an attempt puts its key by this view: if there is a key in it and few
// processes contend, or for a share that must wait. Readers that do not wait need no view.
func (v *view) serves(s backend.Share) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !s.Exclusive() {
		return !v.queue.fits(s)
	}
	return len(v.queue.keys) > 0 && len(v.queue.processes) <= v.b.opt.queueView
}

// processes returns the number of contending processes.
func (v *view) processes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.queue.processes)
}

// holders returns a copy of the keys that hold the lock.
func (v *view) holders() queue {
	v.mu.Lock()
	defer v.mu.Unlock()
	return queue{folder: v.folder, keys: slices.Clone(v.queue.holders())}
}

// checkLocked ends the wait of w if its key is one of the first, which hold the lock, or gone.
// It does nothing while the copy is older than the key, or if w is nil.
func (v *view) checkLocked(w *waiter, holders int) {
	if w == nil || v.current < w.revision {
		return
	}
	switch i, found := v.queue.find(w.key, w.revision); {
	case !found:
		w.turn <- false
	case i < holders:
		w.turn <- true
	default:
		w.reportHolder(v.queue.keys[0].holder())
		return
	}
	delete(v.waiters, w.key)
}

// readQueue reads the queue. The watch is established, so no later event is missed.
func (v *view) readQueue(ctx context.Context) error {
	r, err := v.b.client.Get(ctx, v.folder, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read, v.current = r.Header.Revision, r.Header.Revision
	v.queue = newQueue(v.folder, r.Kvs)
	holders := len(v.queue.holders())
	for _, w := range v.waiters {
		v.checkLocked(w, holders)
	}
	return nil
}

// apply updates the copy. The events of one revision may come in parts, so only events
// that the copy was read with are left out.
func (v *view) apply(events []*clientv3.Event) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range events {
		if e.Kv.ModRevision <= v.read {
			continue
		}
		if e.Type == clientv3.EventTypeDelete {
			v.queue.remove(string(e.Kv.Key))
		} else {
			v.queue.add(e.Kv)
		}
		v.current = max(v.current, e.Kv.ModRevision)
	}
	holders := v.queue.holders()
	for _, e := range events {
		v.checkLocked(v.waiters[string(e.Kv.Key)], len(holders))
	}
	for i := 0; i < len(holders) && len(v.waiters) > 0; i++ {
		v.checkLocked(v.waiters[holders[i].key], len(holders))
	}
	return true
}
