package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

// tombstoneTTL is as in rule.sql, and longer than data of a dead connection can be in flight.
const tombstoneTTL = 5 * time.Minute

// service is the queue.Service: a procedure each.
type service struct {
	server
	db        *sql.DB
	ownDB     bool   // Close closes db
	address   string // for errors: " at host:port", or empty
	opt       options
	schema    *schema
	process   string   // 'l' and 16 hex digits if it listens, or 'p' if it polls
	denied    error    // the user may not acquire locks
	acquires  *batches // not on all connections: the others are for renewals and releases
	others    *batches
	life      *call.Life
	testing   atomic.Bool // testIdle runs
	answering answering
	listener  *listener // nil: the process polls
	events    queue.Events
}

var (
	_ queue.Service = (*service)(nil)
	_ queue.Pusher  = (*service)(nil)
)

// Acquire implements queue.Service.
func (s *service) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	if err := checkOwner(a.Owner); err != nil {
		return queue.Answer{}, err
	}
	if s.denied != nil {
		return queue.Answer{}, backend.NotExecuted(s.denied)
	}
	r, err := s.do(ctx, s.acquires, operation{
		kind: "acquire", key: s.key(a.Key), owner: a.Owner, ttl: a.TTL, flag: a.Mode != queue.NoQueue,
		metadata: a.Metadata, share: a.Share,
	})
	switch {
	case rolledBack(err):
		return queue.Answer{}, queue.Retry(err)
	case err != nil:
		return queue.Answer{}, err
	}
	ans := queue.Answer{
		Sent: r.sent, Now: r.now(), Left: micros(r.lease.Int64), NoPlace: r.noPlace, Pass: micros(r.pass),
		Refused: r.status == refused, Granted: r.status == granted, Watch: r.watch, Ask: micros(r.ask),
	}
	if ans.Granted {
		ans.Token, ans.Slots = uint64(r.token.Int64), parseSlots(r.slots)
	} else if h := r.holder(); h != nil {
		ans.Holder = *h
	}
	return ans, nil
}

// Renew implements queue.Service.
func (s *service) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	ops := make([]operation, len(holds))
	for i, h := range holds {
		ops[i] = operation{kind: "renew", key: s.key(h.Key), owner: h.Owner, ttl: h.TTL}
		if h.Exactly {
			ops[i].kind = "keep"
		}
	}
	all := make([]queue.Renewed, len(holds))
	for i, r := range s.askAll(ctx, ops) {
		if r.err == nil && r.status != held {
			r.err = fmt.Errorf("%w: row %.200q of table %s is not held by this attempt",
				backend.ErrLost, ops[i].key, s.schema.table)
		}
		all[i] = queue.Renewed{Sent: r.sent, Now: r.now(), Pass: micros(r.pass), Err: r.err}
	}
	return all
}

// End implements queue.Service.
func (s *service) End(ctx context.Context, ends []queue.End) []queue.Ended {
	all := make([]queue.Ended, len(ends))
	var at []int
	var ops []operation
	for i, e := range ends {
		key, process := s.key(e.Key), lit(s.process)
		switch err := checkOwner(e.Owner); {
		case e.Kind == queue.Break:
			r, err := s.ask(ctx, s.alone("break", key, e.Owner, "''"))
			all[i] = r.ended(err)
			all[i].Holder = r.holder()
		case e.Kind == queue.Downgrade && e.Share.Capacity > 0:
			all[i].Err = backend.Invalid("share", e.Share.String(), "an exclusive grant or a reader")
		case e.Kind == queue.Downgrade:
			r, err := s.ask(ctx, s.alone("downgrade", key, e.Owner, process))
			all[i] = r.ended(err)
		case err != nil:
			all[i].Err = err
		default:
			at, ops = append(at, i), append(ops, operation{kind: "end", key: key, owner: e.Owner, flag: e.Late})
		}
	}
	for i, r := range s.askAll(ctx, ops) {
		all[at[i]] = r.ended(r.err)
	}
	return all
}

func (r *reply) ended(err error) queue.Ended {
	return queue.Ended{Now: r.now(), Held: r.status == held, Pass: micros(r.pass), Err: err}
}

// Pass implements queue.Service.
func (s *service) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	r, err := s.ask(ctx, s.call("alone", "'pass'", lit(s.key(key)), "''", "''", "0", flag(leaves), "''", "0", "0"))
	return queue.Passed{Now: r.now(), Pass: micros(r.pass)}, err
}

// Close implements queue.Service. It does not close a pool that was passed to New.
func (s *service) Close(ctx context.Context) error {
	err := s.life.Close(ctx)
	if s.ownDB {
		_ = s.db.Close()
	}
	return err
}

// call returns the statement that calls a procedure. The arguments are literals.
func (s *service) call(op string, args ...string) string {
	size := 128
	for _, a := range args {
		size += len(a) + 1
	}
	q := make([]byte, 0, size)
	q = append(append(append(q, "CALL "...), s.schema.procedure(op)...), '(')
	for i, a := range args {
		if i > 0 {
			q = append(q, ',')
		}
		q = append(q, a...)
	}
	return string(append(q, ')'))
}

// alone returns the statement for an operation that has no request of its own.
func (s *service) alone(op, key, owner, process string) string {
	return s.call("alone", "'"+op+"'", lit(key), lit(owner), process, "0", "FALSE", "''", "0", "0")
}

// micro returns d in microseconds, rounded up: a lease must not be shorter than requested.
func micro(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Microsecond-1)/time.Microsecond), 10)
}

func flag(b bool) string {
	if b {
		return "TRUE"
	}
	return "FALSE"
}
