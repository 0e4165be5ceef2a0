package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const (
	// maxRequests is how many requests of a backend wait for replies at a time. The servers refuse requests while 5,000 wait
	// to be applied.
	maxRequests = 256
	// maxTogether is how many transactions share a request, below --max-txn-ops of the servers.
	maxTogether = 64
	// spacing is as in call.NewBatches.
	spacing = 100 * time.Microsecond
)

// txn is a transaction about the keys of one folder. Those of several goroutines share a request, as transactions in one, if
// they are of different folders: a place has the revision of its transaction, and in a queue no other has that.
type txn struct {
	folder          string
	conds           []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// executed is the reply to a transaction.
type executed struct {
	revision  int64
	succeeded bool
	responses []*etcdserverpb.ResponseOp
}

type (
	member  = call.Member[txn, executed]
	batches = call.Batches[txn, executed]
)

// send sends the transactions of a batch. It reports whether the servers have executed one.
func (s *service) send(ctx context.Context, batch []*member) (answered bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.Context(), cancel)()
	return call.Distinct(batch, func(t txn) string { return t.folder },
		func(all []*member) ([]*member, bool) { return s.sendTogether(ctx, all) },
		func(m *member) bool { return s.sendAlone(ctx, m) })
}

// sendTogether returns the transactions that are to be sent alone: if the servers have refused the request because of one.
func (s *service) sendTogether(ctx context.Context, all []*member) (alone []*member, answered bool) {
	ops := make([]clientv3.Op, len(all))
	for i, m := range all {
		m.Sending().Write()
		ops[i] = clientv3.OpTxn(m.Request.conds, m.Request.then, m.Request.otherwise)
	}
	r, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil && notExecuted(err) && !failedToDial(err) && !errors.Is(err, rpctypes.ErrTooManyRequests) {
		return all, false
	}
	for i, m := range all {
		if err != nil {
			m.End(executed{}, err)
			continue
		}
		one := r.Responses[i].GetResponseTxn()
		m.End(executed{r.Header.Revision, one.Succeeded, one.Responses}, nil)
	}
	return nil, err == nil
}

func (s *service) sendAlone(ctx context.Context, m *member) (answered bool) {
	r, err := s.executeAlone(ctx, m)
	m.End(r, err)
	return err == nil
}

func (s *service) executeAlone(ctx context.Context, m *member) (executed, error) {
	if !m.Sending().Write() {
		return executed{}, backend.NotExecuted(context.Canceled)
	}
	t := m.Request
	if len(t.conds) == 0 && len(t.then) == 1 && t.then[0].IsDelete() { // shorter than a transaction
		r, err := s.client.Do(ctx, t.then[0])
		if err != nil {
			return executed{}, err
		}
		deleted := &etcdserverpb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: (*etcdserverpb.DeleteRangeResponse)(r.Del())}
		return executed{r.Del().Header.Revision, true, []*etcdserverpb.ResponseOp{{Response: deleted}}}, nil
	}
	r, err := s.client.Txn(ctx).If(t.conds...).Then(t.then...).Else(t.otherwise...).Commit()
	if err != nil {
		return executed{}, err
	}
	return executed{r.Header.Revision, r.Succeeded, r.Responses}, nil
}
