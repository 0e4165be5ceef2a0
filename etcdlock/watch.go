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
	ctx context.Context, key string, p places.Place, changed func(places.Place, places.Change),
) (end func(), checked bool, err error) {
	target, opts := p.ID, []clientv3.OpOption(nil)
	if p.ID == "" {
		target, opts = s.folder(key), []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithFilterPut()}
	}
	_, end, err = s.watch(ctx, target, opts, func(e *clientv3.Event) {
		c := places.Updated
		if e.Type == clientv3.EventTypeDelete {
			c = places.Ended
		}
		changed(places.Place{ID: string(e.Kv.Key), Version: uint64(e.Kv.ModRevision)}, c)
	}, func() { changed(places.Place{ID: p.ID}, places.Interrupted) })
	return end, false, err
}

// View implements places.Viewer.
func (s *service) View(
	ctx context.Context, key string, changed func(places.Place, places.Change),
) (since uint64, end func(), err error) {
	folder := s.folder(key)
	return s.watch(ctx, folder, []clientv3.OpOption{clientv3.WithPrefix()}, func(e *clientv3.Event) {
		if e.Type == clientv3.EventTypeDelete {
			changed(places.Place{ID: string(e.Kv.Key), Version: uint64(e.Kv.ModRevision)}, places.Ended)
			return
		}
		changed(newPlace(folder, e.Kv), places.Updated)
	}, func() { changed(places.Place{}, places.Interrupted) })
}

// watch begins a watch in the background. It returns when that is established, with the revision before its first event.
func (s *service) watch(
	ctx context.Context, target string, opts []clientv3.OpOption, onEvent func(*clientv3.Event), interrupted func(),
) (revision uint64, end func(), err error) {
	watching, stop := context.WithCancel(s.life.Context())
	established, over := make(chan uint64, 1), make(chan struct{})
	if !s.life.Go(func() {
		defer close(over)
		defer stop()
		s.watchOnce(watching, target, opts, func(revision int64) { established <- uint64(revision) }, onEvent)
		if watching.Err() == nil {
			interrupted()
		}
	}) {
		stop()
		return 0, nil, backend.ErrClosed
	}
	select {
	case revision = <-established:
		return revision, stop, nil
	case <-over:
		return 0, nil, s.readError(ctx, errNotWatched)
	case <-ctx.Done():
		stop()
		return 0, nil, s.readError(ctx, ctx.Err())
	}
}

var errNotWatched = errors.New("etcd: the servers have ended a watch")

// watchOnce watches keys from now on, until the watch breaks or ctx ends. It calls onEstablished with the revision of
// the servers at the beginning. They would send the events of a watch from an earlier revision in batches every 100 ms
// only.
func (s *service) watchOnce(
	ctx context.Context, key string, opts []clientv3.OpOption, onEstablished func(revision int64), onEvent func(*clientv3.Event),
) (established bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range s.client.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...) {
		if r.Err() != nil {
			return established
		}
		if r.Created && !established {
			established = true
			onEstablished(r.Header.Revision)
		}
		for _, e := range r.Events {
			onEvent(e)
		}
	}
	return established
}
