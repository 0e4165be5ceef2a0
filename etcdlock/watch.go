package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// watch watches keys from now on, until apply returns false or ctx ends. Whenever a watch
// is established it calls onEstablished, which reads the keys. The servers would send
// the events of a watch from an earlier revision in batches every 100 ms only.
func (b *Backend) watch(ctx context.Context, key string, opts []clientv3.OpOption, onEstablished func(context.Context) error, apply func([]*clientv3.Event) bool) {
	b.keepWatchStream.Do(b.startIdleWatch)
	const minWait = 50 * time.Millisecond
	for wait := minWait; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		done, established := b.watchOnce(ctx, key, opts, onEstablished, apply)
		if done {
			return
		}
		if established {
			wait = minWait
		}
		pause(ctx, wait)
	}
}

// WatchChanges watches the keys of the holder and the waiters of a lock.
func (b *Backend) WatchChanges(ctx context.Context, key string, changed func()) error {
	return b.do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()
		b.watch(ctx, b.folder(key), []clientv3.OpOption{clientv3.WithPrefix()},
			func(context.Context) error { changed(); return nil },
			func([]*clientv3.Event) bool { changed(); return true })
		if b.ctx.Err() != nil {
			return backend.ErrClosed
		}
		return ctx.Err()
	})
}

// startIdleWatch watches a key that is never put, until Close. The client ends its stream
// with the last watch, and the servers authenticate the user of each new stream.
func (b *Backend) startIdleWatch() {
	if b.client.Username == "" || !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		b.watch(b.ctx, b.root+tombstones, nil, func(context.Context) error { return nil }, func([]*clientv3.Event) bool { return true })
	}()
}

func (b *Backend) watchOnce(ctx context.Context, key string, opts []clientv3.OpOption, onEstablished func(context.Context) error, apply func([]*clientv3.Event) bool) (done, established bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range b.client.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...) {
		if r.Err() != nil {
			return false, established
		}
		if r.Created {
			limited, cancel := context.WithTimeout(ctx, b.opt.openTimeout)
			err := onEstablished(limited)
			cancel()
			if err != nil {
				return false, false
			}
			established = true
		}
		if len(r.Events) > 0 && !apply(r.Events) {
			return true, true
		}
	}
	return false, established
}
