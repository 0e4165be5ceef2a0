package etcdlock

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// survey counts the processes that contend for the key, by their leases, and finds
// the key before the attempt's own. They are too many if that fails: watching the
// predecessor is always right.
func (a *attempt) survey(ctx context.Context, p placed) (few bool, before string) {
	a.b.mu.Lock()
	crowded := a.b.views[a.folder] != nil // else there is no reason to ask
	a.b.mu.Unlock()
	if a.b.opt.viewMax == 0 || crowded {
		return false, ""
	}
	within, cancel := context.WithTimeout(ctx, a.b.opt.open)
	defer cancel()
	r, err := a.b.client.Get(within, a.folder, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(p.revision))
	if err != nil {
		return false, ""
	}
	leases := map[string]struct{}{}
	var last int64
	for _, kv := range r.Kvs {
		if lease, _, ok := parsePlace(string(kv.Key)[len(a.folder):]); ok {
			leases[lease] = struct{}{}
		}
		if kv.CreateRevision < p.revision && kv.CreateRevision > last {
			last, before = kv.CreateRevision, string(kv.Key)
		}
	}
	return len(leases) <= a.b.opt.viewMax, before
}

const retryLook = 100 * time.Millisecond // while the servers do not answer

// follow waits by a watch of the key before the attempt's own. When that is gone,
// one request proves that the attempt's key lives and finds the one before it.
func (a *attempt) follow(ctx context.Context, s *session, p placed, before string, locked func(backend.Holder)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	f := &follower{a: a, p: p, before: before, locked: locked}
	for {
		if f.over || ctx.Err() != nil {
			return f.end(ctx)
		}
		if f.before == "" {
			if err := f.look(ctx); err != nil && !pause(ctx, retryLook) {
				return f.end(ctx)
			}
			continue
		}
		watched := f.before
		moved := func() bool { return f.over || f.before != watched }
		wctx, stop := context.WithCancel(ctx)
		a.b.watch(wctx, watched, []clientv3.OpOption{clientv3.WithFilterPut()},
			func(ctx context.Context) error {
				err := f.look(ctx)
				if moved() {
					stop()
				}
				return err
			},
			func([]*clientv3.Event) bool { return false })
		stop()
		if !moved() {
			f.before = ""
		}
	}
}

type follower struct {
	a      *attempt
	p      placed
	locked func(backend.Holder)
	before string // key of the predecessor
	over   bool
	gone   bool
}

func (f *follower) end(ctx context.Context) error {
	switch {
	case !f.over:
		return ctx.Err()
	case f.gone:
		return errRequeue
	}
	if cause, _ := f.a.s.fate(); cause != nil {
		return cause
	}
	return nil
}

// look finds out whose turn it is.
func (f *follower) look(ctx context.Context) error {
	b := f.a.b
	r, err := b.client.Get(ctx, f.a.folder, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(f.p.revision),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	switch {
	case len(r.Kvs) == 0 || string(r.Kvs[0].Key) != f.a.key || r.Kvs[0].CreateRevision != f.p.revision:
		f.over, f.gone = true, true
	case len(r.Kvs) == 1:
		f.over = true
	default:
		f.before = string(r.Kvs[1].Key)
		f.locked(backend.Holder{}) // the holder is further ahead, or it is this one
	}
	return nil
}

// holder is the party of a folder's first key.
func (b *Backend) holder(folder string, kv *mvccpb.KeyValue) backend.Holder {
	h := backend.Holder{Party: party(folder, kv), Token: uint64(kv.CreateRevision)}
	_, _, ours := parsePlace(string(kv.Key)[len(folder):])
	h.Foreign = !ours
	return h
}

func party(folder string, kv *mvccpb.KeyValue) backend.Party {
	rest := string(kv.Key)[len(folder):]
	if _, owner, ok := parsePlace(rest); ok {
		return backend.Party{Owner: owner, Metadata: string(kv.Value)}
	}
	return backend.Party{Owner: rest}
}
