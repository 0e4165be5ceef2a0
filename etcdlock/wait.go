package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// wait returns nil when the key of the attempt holds the lock, which is the first of its
// folder for an exclusive one, and errRequeue when it is gone. It waits by v, if that is not nil. Else it waits by the view of
// the queue while few processes contend, and by a watch of its predecessor otherwise.
func (a *attempt) wait(ctx context.Context, s *session, v *view, p queuePlace) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	predecessor := ""
	if v == nil {
		if v, predecessor = a.viewFor(ctx, p); v != nil {
			defer v.leave()
		}
	}
	if v == nil {
		f := &follower{a: a, place: p, predecessor: predecessor}
		return a.waitError(s, f.wait(ctx))
	}
	w := &waiter{key: a.key, revision: p.revision, turn: make(chan bool, 1), reportHolder: a.reportHolder}
	defer v.remove(w)
	v.enter(w)
	var err error
	select {
	case first := <-w.turn:
		if cause, _ := s.ended(); cause == nil && !first {
			err = errRequeue
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	return a.waitError(s, err)
}

// reportHolder calls Request.OnWait, once for an attempt.
func (a *attempt) reportHolder(h backend.Holder) {
	if a.req.OnWait != nil {
		a.req.OnWait(&backend.LockedError{Holder: h})
		a.req.OnWait = nil
	}
}

// waitError returns the result of a wait that ended with err.
func (a *attempt) waitError(s *session, err error) error {
	cause, gone := s.ended()
	switch {
	case err == nil && cause == nil, errors.Is(err, errRequeue):
		return err
	case gone:
		return errRequeue // the key was deleted with the lease
	case cause != nil:
		return backend.Uncertain(fmt.Errorf("etcd: no answer for %v: the lease %016x could not be kept alive", s.ttl(), uint64(s.id)))
	case a.b.ctx.Err() != nil:
		return backend.Uncertain(backend.ErrClosed)
	}
	return backend.Uncertain(err)
}

const lookRetry = 100 * time.Millisecond // while the servers do not answer

// countProcesses counts the processes that contend for the key, by their leases, and
// returns the key of the predecessor, or "".
func (a *attempt) countProcesses(ctx context.Context, p queuePlace) (processes int, predecessor string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.b.opt.openTimeout)
	defer cancel()
	r, err := a.b.client.Get(ctx, a.folder, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(p.revision))
	if err != nil {
		return 0, "", err
	}
	q := newQueue(a.folder, r.Kvs)
	if i, _ := q.find(a.key, p.revision); i > 0 {
		predecessor = q.keys[i-1].key
	}
	return len(q.processes), predecessor, nil
}

// A follower is an attempt that waits by a watch of the key before its own. When that
// is gone, one request verifies the key of the attempt and finds the next predecessor.
type follower struct {
	a           *attempt
	place       queuePlace
	predecessor string // "" if unknown
	first, gone bool   // results of look
}

// wait returns nil when the key of the attempt is the first, and errRequeue when it is
// gone.
func (f *follower) wait(ctx context.Context) error {
	for ctx.Err() == nil {
		switch {
		case f.gone:
			return errRequeue
		case f.first:
			return nil
		case f.predecessor == "":
			if f.look(ctx) != nil {
				pause(ctx, lookRetry)
			}
		default:
			f.watchPredecessor(ctx)
		}
	}
	return ctx.Err()
}

// watchPredecessor returns when the predecessor is gone or has changed. The watch
// reports later events only, so it looks once the watch is established.
func (f *follower) watchPredecessor(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := f.predecessor
	f.a.b.watch(ctx, watched, []clientv3.OpOption{clientv3.WithFilterPut()},
		func(ctx context.Context) error {
			err := f.look(ctx)
			if f.predecessor != watched {
				cancel()
			}
			return err
		},
		func([]*clientv3.Event) bool {
			f.predecessor = ""
			return false
		})
}

// look reads the key of the attempt and the one before it.
func (f *follower) look(ctx context.Context) error {
	r, err := f.a.b.client.Get(ctx, f.a.folder, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(f.place.revision),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(2), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	f.predecessor = ""
	switch {
	case len(r.Kvs) == 0 || string(r.Kvs[0].Key) != f.a.key || r.Kvs[0].CreateRevision != f.place.revision:
		f.gone = true
	case len(r.Kvs) == 1:
		f.first = true
	default:
		f.predecessor = string(r.Kvs[1].Key)
		f.a.reportHolder(backend.Holder{}) // it is the predecessor or further ahead
	}
	return nil
}
