package etcdlock

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

// removal is a removal with the key that it is about; "" if there is none.
type removal struct {
	places.Removal
	key    string
	result *places.Removed
}

// Remove implements places.Service.
func (s *service) Remove(ctx context.Context, all []places.Removal) []places.Removed {
	ctx = clientv3.WithRequireLeader(undated{ctx})
	results := make([]places.Removed, len(all))
	select {
	case s.removing <- struct{}{}:
		defer func() { <-s.removing }()
	case <-ctx.Done():
		return slices.Repeat([]places.Removed{{Err: backend.NotExecuted(s.readError(ctx, ctx.Err()))}}, len(all))
	}
	broken := map[clientv3.LeaseID][]removal{}
	var others []removal
	for i, r := range all {
		one := removal{r, r.ID, &results[i]}
		if one.key == "" {
			if one.key, results[i].Err = s.keyOf(ctx, &r); results[i].Err != nil || one.key == "" {
				continue
			}
		}
		if r.Break {
			n, _ := parseName(strings.TrimPrefix(r.ID, s.folder(r.Key)))
			broken[n.lease] = append(broken[n.lease], one)
		} else {
			others = append(others, one)
		}
	}
	for part := range slices.Chunk(others, maxOps/2) {
		s.remove(ctx, part)
	}
	for lease, held := range broken {
		for part := range slices.Chunk(held, maxOps) {
			s.breakPlaces(ctx, lease, part)
		}
	}
	return results
}

// keyOf returns the key of an attempt that did not learn of it, "" if it has none.
func (s *service) keyOf(ctx context.Context, r *places.Removal) (string, error) {
	folder := s.folder(r.Key)
	if ss, ok := r.Session.(*session); ok {
		return folder + name{r.Asked.Share, ss.id, r.Number}.String(), nil
	}
	found, err := s.client.Get(ctx, folder, clientv3.WithPrefix())
	if err != nil {
		return "", s.readError(ctx, err)
	}
	for _, kv := range found.Kvs { // it was made by another backend, or is over
		if p := newPlace(folder, kv); p.Owner == r.Asked.Owner && !p.Foreign {
			return p.ID, nil
		}
	}
	return "", nil
}

// remove deletes keys. Of attempts with an unanswered request it also puts the markers of their sessions, so that the
// servers refuse what they execute later.
func (s *service) remove(ctx context.Context, part []removal) {
	var ops []clientv3.Op
	late := map[*session]bool{}
	for _, r := range part {
		ops = append(ops, clientv3.OpDelete(r.key))
		if ss, ok := r.Session.(*session); ok && r.Late && !ss.isGone() {
			late[ss] = true
		}
	}
	deletions := len(ops)
	for ss := range late {
		ops = append(ops, ss.bump())
	}
	if len(ops) == 1 {
		r, err := s.batches.Do(ctx, txn{folder: folderOf(part[0].key), then: ops})
		if err != nil {
			part[0].result.Err = s.writeError(ctx, err)
			return
		}
		part[0].result.Existed = r.responses[0].GetResponseDeleteRange().Deleted > 0
		return
	}
	r, err := s.client.Txn(ctx).Then(ops...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound) && len(late) == 1:
		for ss := range late { // its keys are gone, and the servers refuse what comes later
			ss.end(ss.gone(), true)
		}
		r, err = s.client.Txn(ctx).Then(ops[:deletions]...).Commit()
	case errors.Is(err, rpctypes.ErrNoSpace):
		// A deletion needs no space, and waiters must not wait for the marker. A late request is refused too while
		// there is no space.
		if r, err = s.client.Txn(ctx).Then(ops[:deletions]...).Commit(); err == nil {
			s.bumpLater(late)
		}
	case err == nil:
		for ss := range late {
			ss.advance(r.Header.Revision)
		}
	}
	for i, one := range part {
		if err != nil {
			one.result.Err = s.writeError(ctx, err)
		} else {
			one.result.Existed = r.Responses[i].GetResponseDeleteRange().Deleted > 0
		}
	}
}

// bumpLater puts the markers of sessions when there is space again.
func (s *service) bumpLater(late map[*session]bool) {
	for ss := range late {
		s.life.Go(func() {
			retry(s.life.Context(), s.opt.openTimeout, func(ctx context.Context) error {
				r, err := s.client.Do(ctx, ss.bump())
				if errors.Is(err, rpctypes.ErrLeaseNotFound) {
					return nil
				}
				if err == nil {
					ss.advance(r.Put().Header.Revision)
				}
				return err
			})
		})
	}
}

// breakPlaces deletes the keys of holders with one lease, those that are still the ones that the caller knows, and notifies
// their process by the marker of its session.
func (s *service) breakPlaces(ctx context.Context, lease clientv3.LeaseID, part []removal) {
	var same []clientv3.Cmp
	var ops []clientv3.Op
	var owners []string
	for _, r := range part {
		same = append(same, clientv3.Compare(clientv3.CreateRevision(r.key), "=", int64(r.Order)))
		ops = append(ops, clientv3.OpDelete(r.key))
		owners = append(owners, r.Owner)
	}
	marker := s.marker(lease)
	ops = append(ops, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(marker), ">", 0)},
		[]clientv3.Op{clientv3.OpPut(marker, strings.Join(owners, ","), clientv3.WithIgnoreLease())}, nil))
	r, err := s.client.Txn(ctx).If(same...).Then(ops...).Commit()
	switch {
	case err == nil && !r.Succeeded && len(part) > 1: // some have ended
		for i := range part {
			s.breakPlaces(ctx, lease, part[i:i+1])
		}
		return
	case err != nil:
		err = s.writeError(ctx, err)
	}
	for _, one := range part {
		one.result.Err, one.result.Existed = err, err == nil && r.Succeeded
	}
}
