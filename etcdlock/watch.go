package etcdlock

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// Watch implements places.Service.
func (s *service) Watch(
	ctx context.Context, key string, p places.Place, changed func(string, places.Change),
) (end func(), checked bool, err error) {
	target, opts := p.ID, []clientv3.OpOption(nil)
	if p.ID == "" {
		target, opts = s.folder(key), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithFilterPut()}
	}
	watching, stop := context.WithCancel(s.life.Context())
	established, over := make(chan struct{}), make(chan struct{})
	if !s.life.Go(func() {
		defer close(over)
		defer stop()
		s.watchOnce(watching, target, opts, func() { close(established) }, func(e *clientv3.Event) {
			c := places.Updated
			if e.Type == clientv3.EventTypeDelete {
				c = places.Ended
			}
			changed(string(e.Kv.Key), c)
		})
		if watching.Err() == nil {
			changed(p.ID, places.Interrupted)
		}
	}) {
		stop()
		return nil, false, backend.ErrClosed
	}
	select {
	case <-established:
		return stop, false, nil
	case <-over:
		return nil, false, s.readError(ctx, errNotWatched)
	case <-ctx.Done():
		stop()
		return nil, false, s.readError(ctx, ctx.Err())
	}
}

var errNotWatched = errors.New("etcd: the servers have ended a watch")

// watchOnce watches keys from now on, until the watch breaks or ctx ends. It calls onEstablished when it does. The
// servers would send the events of a watch from an earlier revision in batches every 100 ms only.
func (s *service) watchOnce(
	ctx context.Context, key string, opts []clientv3.OpOption, onEstablished func(), onEvent func(*clientv3.Event),
) (established bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range s.client.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...) {
		if r.Err() != nil {
			return established
		}
		if r.Created && !established {
			established = true
			onEstablished()
		}
		for _, e := range r.Events {
			onEvent(e)
		}
	}
	return established
}
