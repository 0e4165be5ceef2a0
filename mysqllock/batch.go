package mysqllock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// operation is an acquire, a renewal or an end. Its flag is the argument p_flag of the procedure one.
type operation struct {
	kind, key, owner string
	ttl              time.Duration
	flag             bool
	metadata         string
	share            backend.Share
}

type (
	batches = call.Batches[operation, answered]
	member  = call.Member[operation, answered]
)

// do sends an operation, with others that are sent at the same time.
func (s *service) do(ctx context.Context, to *batches, o operation) (reply, error) {
	return s.unguarded(ctx, func() answered {
		r, err := within(ctx, s, func(ctx context.Context) (answered, error) { return to.Do(ctx, o) })
		return answered{r.reply, err}
	})
}

// sendBatch sends the operations of a batch, those about different keys in one transaction. What that cannot execute without
// waiting for a row follows by itself.
func (s *service) sendBatch(ctx context.Context, batch []*member) (executed bool) {
	ctx = context.WithoutCancel(ctx) // also without the deadline, which is that of the callers
	return call.Distinct(batch, func(o operation) string { return o.key },
		func(all []*member) ([]*member, bool) { return s.sendTogether(ctx, all) },
		func(m *member) bool { return s.sendAlone(ctx, m) })
}

func (s *service) sendTogether(ctx context.Context, all []*member) (alone []*member, executed bool) {
	ops := make([]operation, len(all))
	for i, m := range all {
		ops[i] = m.Request
	}
	results, err := s.execute(ctx, all[0].Sending(), s.severalIn(ops, false), len(ops))
	if rolledBack(err) || number(err) == errLockWait {
		err = backend.Uncertain(err) // many may have committed the first ones
	}
	for i, m := range all {
		switch {
		case err != nil:
			m.End(answered{}, err)
		case results[i].status == busy:
			alone = append(alone, m)
		default:
			m.End(results[i], nil)
		}
	}
	return alone, err == nil
}

func (s *service) sendAlone(ctx context.Context, m *member) (executed bool) {
	o := m.Request
	q := s.call("one", "'"+o.kind+"'", lit(o.key), lit(o.owner), lit(s.process), micro(o.ttl), flag(o.flag), lit(o.metadata),
		strconv.Itoa(o.share.Weight), strconv.Itoa(o.share.Capacity))
	all, err := s.execute(ctx, m.Sending(), q, 1)
	if err != nil {
		m.End(answered{}, err)
		return false
	}
	m.End(all[0], nil)
	return true
}

// severalIn returns the statement that executes operations in one transaction.
func (s *service) severalIn(ops []operation, wait bool) string {
	var list strings.Builder
	for _, o := range ops {
		set := 0
		if o.flag {
			set = 1
		}
		fmt.Fprintf(&list, "%s,%x,%x,%s,%d,%x,%d,%d;",
			o.kind, o.key, o.owner, micro(o.ttl), set, o.metadata, o.share.Weight, o.share.Capacity)
	}
	return s.call("many", lit(s.process), "'"+list.String()+"'", flag(wait))
}
