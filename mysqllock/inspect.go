package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const pageSize = 500 // names of one SELECT of List

// read calls f, which only reads, with a connection, and returns its result. It is repeated over another connection if that
// was broken. If ctx ends first f goes on, so it uses no variable that its caller changes.
func read[T any](ctx context.Context, s *service, f func(context.Context, *sql.Conn) (T, error)) (T, error) {
	begun := time.Now()
	result, err := call.Detached(ctx, s.life, func(ctx context.Context, sending *call.Sending) (result T, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.timeout)
		defer cancel()
		for range 3 {
			var conn *sql.Conn
			if conn, err = s.connect(ctx); err != nil {
				break
			}
			if !sending.Write() {
				_ = conn.Close()
				break
			}
			result, err = f(ctx, conn)
			if err = failure(err); err == nil {
				_ = conn.Close()
				break
			}
			discard(conn)
			if number(err) != 0 || ctx.Err() != nil {
				break
			}
		}
		return result, err
	})
	if err != nil && unanswered(ctx, begun) {
		s.life.Go(s.testIdle)
	}
	return result, err
}

// infos reads the locks that a condition on their rows selects, with their waiters and share holders.
func (s *service) infos(ctx context.Context, where string) ([]backend.Info, error) {
	q := s.schema.sql(fmt.Sprintf(
		"SELECT l.name, 0, l.owner, l.metadata, l.token, l.owner IS NOT NULL AND l.expires > %[1]s, "+
			"l.expires, l.since, 0, 0, '', %[1]s FROM (SELECT * FROM `interlock` WHERE %[2]s) l "+
			"UNION ALL SELECT q.name, q.place, q.owner, q.metadata, q.place - %[3]s, q.ends > %[1]s, "+
			"q.ends, q.since, q.weight, q.capacity, q.slots, %[1]s FROM (SELECT name FROM `interlock` WHERE %[2]s) l "+
			"STRAIGHT_JOIN `interlock_places` q ON q.name = l.name AND q.place > 0 ORDER BY 1, 2 LIMIT %[4]s",
		clock, where, shareBase, noLimit))
	return read(ctx, s, func(ctx context.Context, c *sql.Conn) (all []backend.Info, err error) {
		rows, err := c.QueryContext(ctx, q)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var r row
			if err := rows.Scan(&r.name, &r.place, &r.owner, &r.Metadata, &r.token, &r.holds, &r.expires, &r.since,
				&r.Share.Weight, &r.Share.Capacity, &r.slots, &r.now); err != nil {
				return nil, err
			}
			all = s.add(all, r)
		}
		return all, rows.Err()
	})
}

const (
	shareBase = "4611686018427387904"  // as in rule.sql
	noLimit   = "18446744073709551615" // stronger than sql_select_limit
)

// row is a row of the table of locks, which has place 0, or of places.
type row struct {
	backend.Contender
	name                       string
	owner                      sql.NullString
	place, expires, since, now int64
	token                      int64 // of a holder
	holds                      bool
	slots                      []byte
}

func (s *service) add(all []backend.Info, r row) []backend.Info {
	name := strings.TrimPrefix(r.name, s.key(""))
	if r.place == 0 {
		all = append(all, backend.Info{Name: name})
	}
	if len(all) == 0 || all[len(all)-1].Name != name || r.place == 0 && !r.holds {
		return all
	}
	info := &all[len(all)-1]
	r.Owner, r.Age = r.owner.String, micros(max(r.now-r.since, 0))
	h := backend.Holder{
		Contender: r.Contender, Token: uint64(r.token), Left: micros(max(r.expires-r.now, 0)), Slots: parseSlots(r.slots),
	}
	switch {
	case !r.holds && r.token < 0: // its place is below that of the holders
		info.Waiters = append(info.Waiters, r.Contender)
	case !r.holds: // its lease has ended
	case info.Holder == nil:
		info.Holder = &h
	default:
		info.Others = append(info.Others, h)
	}
	return all
}

// Inspect returns the holders and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	found, err := b.svc.infos(ctx, "name = "+lit(b.svc.key(key)))
	if err != nil || len(found) == 0 {
		return backend.Info{Name: key}, err
	}
	return found[0], nil
}

// List lists the held keys of the prefix, in pages by primary key.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	prefix := b.svc.key("")
	after, end := prefix, prefix[:len(prefix)-1]+";" // the byte that follows the colon
	for {
		found, err := b.svc.infos(ctx, fmt.Sprintf("name > %s AND name < %s AND (expires > %s OR shares > 0) ORDER BY name LIMIT %d",
			lit(after), lit(end), clock, pageSize))
		if err != nil {
			return err
		}
		for _, info := range found {
			if info.Holder != nil && !yield(info) {
				return nil
			}
		}
		if len(found) < pageSize {
			return nil
		}
		after = b.svc.key(found[len(found)-1].Name)
	}
}
