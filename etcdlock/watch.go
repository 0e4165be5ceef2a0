package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch follows keys from now on, until apply returns false or ctx ends. Whenever
// a watch was established, sync reads what it is about; a watch that asked for an
// earlier revision instead would be served in a batch each 100 ms only. What
// fails is begun again.
func (b *Backend) watch(ctx context.Context, key string, opts []clientv3.OpOption, sync func(context.Context) error, apply func([]*clientv3.Event) bool) {
	const least = 50 * time.Millisecond
	for wait := least; ctx.Err() == nil; wait = min(2*wait, time.Second) {
		done, worked := b.watchOnce(ctx, key, opts, sync, apply)
		if done {
			return
		}
		if worked {
			wait = least
		}
		pause(ctx, wait)
	}
}

func (b *Backend) watchOnce(ctx context.Context, key string, opts []clientv3.OpOption, sync func(context.Context) error, apply func([]*clientv3.Event) bool) (done, worked bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range b.client.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...) {
		if r.Err() != nil {
			return false, worked
		}
		if r.Created {
			within, cancel := context.WithTimeout(ctx, b.opt.open)
			err := sync(within)
			cancel()
			if err != nil {
				return false, false
			}
			worked = true
		}
		if len(r.Events) > 0 && !apply(r.Events) {
			return true, true
		}
	}
	return false, worked
}
