package pglock

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
)

// service is the queue.Service: a function each, see sql/.
type service struct {
	*server
	process  string // random; names the channel of this process
	listener *listener
	events   queue.Events // set before the first notification can arrive

	trusting bool   // losses are reported without a look at the server
	secret   string // random; see secretOf
	mu       sync.Mutex
	known    map[string]known   // by owner: attempts that wait or hold
	sessions map[uint32]session // of the server, by their numbers

	acquires *acquires // not on all connections: the others are for renewals and removals
	removals *removals
	hints    chan struct{} // slots of statements that a notification causes: any role can send one
}

var (
	_ queue.Service = (*service)(nil)
	_ queue.Pusher  = (*service)(nil)
)

func newService(pool *pgxpool.Pool, o options, sql statements) *service {
	id, secret := make([]byte, 8), make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(secret)
	conns := int(pool.Config().MaxConns)
	s := &service{
		server: newServer(pool, o, sql), process: hex.EncodeToString(id),
		secret: string(secret), known: map[string]known{}, sessions: map[uint32]session{},
		hints: make(chan struct{}, maxHints),
	}
	s.acquires = call.NewBatches(s.life, max(1, conns-max(1, conns/4)), maxTogether, spacing, s.sendAcquires)
	s.removals = call.NewBatches(s.life, conns, maxTogether, spacing, s.sendRemovals)
	s.listener = newListener(s)
	s.connectionDoubted = s.listener.check
	s.demoted = s.listener.drop
	s.sends = s.used
	return s
}

// Acquire implements queue.Service.
func (s *service) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	first := s.asks(a.Owner, a.Key)
	var pass time.Duration // of the answers before
	r, err := replied{answer: answer{status: again}}, error(nil)
	for r.status == again && err == nil {
		r, err = s.acquires.Do(ctx, a)
		pass = queue.Sooner(pass, micros(r.pass))
	}
	if first && (err != nil || r.status == refused || r.status == held && a.Mode == queue.NoQueue) {
		s.forget(a.Owner)
	}
	switch {
	case rolledBack(err):
		return queue.Answer{Pass: pass}, queue.Retry(err)
	case err != nil:
		return queue.Answer{Pass: pass}, err
	}
	ans := queue.Answer{
		Sent: r.sent, Now: micros(r.clock), Left: micros(r.remaining), Pass: pass,
		NoPlace: r.noPlace, Watch: r.watch, Ask: micros(r.ask),
	}
	switch r.status {
	case refused:
		ans.Refused = true
	case granted:
		ans.Granted, ans.Token, ans.Slots = true, uint64(max(r.token, 0)), slotsOf(r.slots)
		s.holds(a.Owner, a.Key)
	default:
		ans.Holder = r.firstHolder()
		if r.noPlace && a.Mode != queue.NoQueue {
			s.follows(a.Owner, a.Key, r.ahead)
		}
	}
	return ans, nil
}

// Renew implements queue.Service. The renewals of one key are one call of a function. Those of many are one statement,
// which waits for no row. What another transaction has locked is renewed alone, within an eighth of the shortest lease,
// so that the results of the others are not late.
func (s *service) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	results := make([]queue.Renewed, len(holds))
	groups := map[string]*renewals{}
	shortest := backend.MaxTTL
	var all []*renewals
	for i, h := range holds {
		g := groups[h.Key]
		if g == nil {
			g = &renewals{name: s.key(h.Key)}
			groups[h.Key], all = g, append(all, g)
		}
		g.at, g.owners = append(g.at, i), append(g.owners, h.Owner)
		g.ttls, g.exactly = append(g.ttls, micro(h.TTL)), append(g.exactly, h.Exactly)
		shortest = min(shortest, h.TTL)
	}
	if len(all) > 1 {
		var cancel context.CancelFunc
		all = s.renewMany(ctx, all, results)
		ctx, cancel = context.WithTimeout(ctx, shortest/8)
		defer cancel()
	}
	var alone sync.WaitGroup
	for _, g := range all {
		alone.Go(func() {
			r, sent, err := one(ctx, s.server, s.sql.renew, g.name, g.owners, s.process, g.ttls, g.exactly)
			s.renewed(g, r, sent, err, results)
		})
	}
	alone.Wait()
	return results
}

// renewals are those of one key.
type renewals struct {
	name    []byte
	at      []int // the indexes of the results
	owners  []string
	ttls    []int64
	exactly []bool
}

// renewMany renews what no other transaction has locked, and returns the rest.
func (s *service) renewMany(ctx context.Context, all []*renewals, results []queue.Renewed) (rest []*renewals) {
	var names [][]byte
	var begin, end, ttls []int64
	var owners []string
	var exactly []bool
	for _, g := range all {
		names, begin = append(names, g.name), append(begin, int64(len(owners)+1))
		owners, ttls, exactly = append(owners, g.owners...), append(ttls, g.ttls...), append(exactly, g.exactly...)
		end = append(end, int64(len(owners)))
	}
	rows, sent, err := query(ctx, s.server, scanAnswer, s.sql.renewMany,
		names, begin, end, owners, s.process, ttls, exactly)
	for i, g := range all {
		if r := at(rows, i); r.status == locked {
			rest = append(rest, g)
		} else {
			s.renewed(g, r, sent, err, results)
		}
	}
	return rest
}

// renewed sets the results of renewals.
func (s *service) renewed(g *renewals, r answer, sent time.Time, err error, results []queue.Renewed) {
	renewed := map[string]bool{}
	for _, owner := range r.renewed {
		renewed[owner] = true
	}
	for i, owner := range g.owners {
		result := queue.Renewed{Sent: sent, Now: micros(r.clock), Pass: micros(r.pass), Err: err}
		if err == nil && !renewed[owner] {
			result.Err = s.lost(g.name)
			s.forget(owner)
		}
		results[g.at[i]] = result
	}
}

// at returns the answer of a batch at i.
func at(rows []answer, i int) answer {
	if n := slices.IndexFunc(rows, func(r answer) bool { return r.index == int64(i+1) }); n >= 0 {
		return rows[n]
	}
	return answer{}
}

// End implements queue.Service. Many ends are one statement, which waits for no row, as in Renew; so are single ones that
// are made at the same time.
func (s *service) End(ctx context.Context, ends []queue.End) []queue.Ended {
	all := make([]queue.Ended, len(ends))
	var at []int // those that a statement can have many of
	var many []queue.End
	for i, e := range ends {
		if e.Kind == queue.Release || e.Kind == queue.Abandon {
			at, many = append(at, i), append(many, e)
		} else {
			all[i] = s.end(ctx, e)
		}
	}
	if len(many) == 1 {
		e, err := s.removals.Do(ctx, many[0])
		if err != nil {
			e = s.ended(many[0], answer{}, err)
		}
		all[at[0]] = e
	} else if len(many) > 1 {
		s.endMany(ctx, many, func(i int, e queue.Ended) { all[at[i]] = e },
			func(i int) { all[at[i]] = s.end(ctx, many[i]) })
	}
	return all
}

// endMany executes ends in one statement, in the order of their names, because that may create rows. It calls done with
// each result, or then alone for what another transaction has locked.
func (s *service) endMany(ctx context.Context, ends []queue.End, done func(i int, e queue.Ended), alone func(i int)) {
	order := make([]int, len(ends))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return bytes.Compare(s.key(ends[i].Key), s.key(ends[j].Key)) })
	n := len(ends)
	ops, keys, owners, late, secrets := make([]string, n), make([][]byte, n), make([]string, n), make([]bool, n), make([]string, n)
	for row, i := range order {
		e := ends[i]
		ops[row], keys[row], owners[row], late[row], secrets[row] = opOf(e), s.key(e.Key), e.Owner, e.Late, s.secretOf(e.Owner)
	}
	rows, _, err := query(ctx, s.server, scanAnswer, s.sql.endMany, ops, keys, owners, s.process, late, secrets)
	var rest []int
	for row, i := range order {
		if r := at(rows, row); r.status == locked || r.status == guarded {
			rest = append(rest, i)
		} else {
			done(i, s.ended(ends[i], r, err))
		}
	}
	for _, i := range rest {
		alone(i)
	}
}

func (s *service) ended(e queue.End, r answer, err error) queue.Ended {
	if e.Kind == queue.Release || e.Kind == queue.Abandon {
		s.forget(e.Owner)
	}
	d := queue.Ended{Now: micros(r.clock), Held: r.status == ended, Pass: micros(r.pass), Err: err}
	if e.Kind == queue.Break && r.holder != "" {
		h := r.firstHolder()
		d.Holder = &h
	}
	return d
}

// opOf returns the operation of interlock_end. An attempt that this process does not know, which has no TTL, may be that
// of another process: any role can send a notification about it.
func opOf(e queue.End) string {
	if e.TTL == 0 {
		return "forget"
	}
	return "end"
}

// The pauses until a removal is repeated while a transaction with Guard keeps the holder.
const guardPause, maxGuardPause = 5 * time.Millisecond, 100 * time.Millisecond

func (s *service) end(ctx context.Context, e queue.End) queue.Ended {
	if e.Kind == queue.Downgrade && e.Share.Capacity > 0 {
		return queue.Ended{Err: backend.Invalid("share", e.Share.String(), "an exclusive grant or a reader")}
	}
	sql, args := s.sql.end, []any{opOf(e), s.key(e.Key), e.Owner, s.process, e.Late, s.secretOf(e.Owner)}
	switch e.Kind {
	case queue.Break:
		sql, args = s.sql.breaks, []any{s.key(e.Key), e.Owner}
	case queue.Downgrade:
		sql, args = s.sql.downgrade, []any{s.key(e.Key), e.Owner, s.process}
	}
	until := time.Now().Add(s.opt.timeout)
	for pause := guardPause; ; pause = min(2*pause, maxGuardPause) {
		rows, _, err := queryThen(ctx, s.server, scanAnswer, s.rest(ctx, e), sql, args...)
		var r answer
		for i, row := range rows {
			if i == 0 {
				r = row
			}
			r.pass = row.pass // as long as it is negative, and then it is that of the last grants
		}
		if err != nil || r.status != guarded {
			return s.ended(e, r, err)
		}
		call.Sleep(ctx, pause)
		if ctx.Err() != nil || time.Now().After(until) {
			const still = "a transaction with Guard still depends on the lock"
			err := cmp.Or(call.Ended(ctx), fmt.Errorf("%s: %s", s.at(""), still))
			return s.ended(e, r, backend.NotExecuted(err))
		}
	}
}

// maxRest is how long the waiters are granted that one statement could not.
const maxRest = time.Second

// rest returns what grants the other waiters of a key after an end that could not grant all. The same session of the
// server does, so that the secret proves those grants too; see proves. It uses half of the time that ctx leaves at most,
// so that the caller gets the result of the end. What is left then is for Pass.
func (s *service) rest(ctx context.Context, e queue.End) func(rows []answer) (sql string, args []any) {
	until := time.Now().Add(maxRest)
	if d, ok := ctx.Deadline(); ok {
		until = time.Now().Add(min(maxRest, time.Until(d)/2))
	}
	return func(rows []answer) (string, []any) {
		if rows[len(rows)-1].pass >= 0 || time.Now().After(until) {
			return "", nil
		}
		return s.sql.rest, []any{s.key(e.Key), s.secretOf(e.Owner)}
	}
}

// Pass implements queue.Service.
func (s *service) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	r, _, err := one(ctx, s.server, s.sql.pass, s.key(key), leaves)
	return queue.Passed{Now: micros(r.clock), Pass: micros(r.pass)}, err
}

// Close implements queue.Service. It ends the listening connection and waits for requests. It does not close a pool that
// was given to New.
func (s *service) Close(ctx context.Context) error {
	err := s.life.Close(ctx)
	switch {
	case !s.ownsPool:
	case err == nil:
		s.pool.Close()
	default:
		go s.pool.Close() // it waits for the connections of the requests
	}
	return err
}

func (s *service) key(name string) []byte { return Key(s.opt.prefix, name) }
