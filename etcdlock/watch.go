package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch watches keys from now on, until apply returns false or ctx ends. Whenever a watch
// is established it calls onEstablished, which reads the keys. The servers would send
// the events of a watch from an earlier revision in batches every 100 ms only.
func (b *Backend) watch(ctx context.Context, key string, opts []clientv3.OpOption, onEstablished func(context.Context) error, apply func([]*clientv3.Event) bool) {
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
