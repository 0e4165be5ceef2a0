package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

// stage is a server, a backend and a lock. The test changes the rows of the lock, so that leases expire at once, and
// calls the functions as another process does.
type stage struct {
	*testing.T
	s     *provision.Server
	admin *pgxpool.Pool
	b     *pglock.Backend
	key   string

	version string // of the functions that call calls
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s, admin := server(t)
	_, version := schemaOf(t, pglock.DefaultTable)
	return &stage{t, s, admin, open(t, pgtest.With(s, nil)), "k", version}
}

// beside returns the stage of another lock.
func (s *stage) beside(t *testing.T, key string) *stage {
	return &stage{t, s.s, s.admin, s.b, key, s.version}
}

func (s *stage) name() []byte { return pglock.Key(pglock.DefaultPrefix, s.key) }

func (s *stage) share(share backend.Share) backend.Request {
	req := request(s.key, time.Hour)
	req.Share = share
	return req
}

func (s *stage) tryShare(share backend.Share) backend.Grant {
	s.Helper()
	g, err := s.b.TryAcquire(s.Context(), s.share(share))
	must(s, err)
	return g
}

func (s *stage) try() backend.Grant {
	s.Helper()
	return s.tryShare(backend.Share{})
}

// past is a time a second ago, as in the tables.
const past = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000"

// expire ends the lease of a holder, or those of all holders if owner is "".
func (s *stage) expire(owner string) {
	s.Helper()
	// The row of the lock has the first end of the shares.
	tag, err := s.admin.Exec(s.Context(), `WITH places AS (UPDATE interlock_places SET expires = `+past+`
			WHERE name = $1 AND kind = 'h' AND $2 IN ('', owner))
		UPDATE interlock SET expires = least(expires, `+past+`) WHERE name = $1 AND (owner IS NULL OR $2 IN ('', owner))`, s.name(), owner)
	if err != nil || tag.RowsAffected() != 1 {
		s.Fatalf("expire: %v, %v", tag, err)
	}
}

// conn is a pool or a transaction.
type conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// call calls a function of the driver, such as "acquire", and returns the status of its answer.
func (s *stage) call(c conn, function string, args ...any) (status string) {
	s.Helper()
	places := make([]string, len(args))
	for i := range args {
		places[i] = fmt.Sprint("$", i+1)
	}
	query := "SELECT status FROM interlock_" + function + "_" + s.version + "(" + strings.Join(places, ", ") + ")"
	must(s, c.QueryRow(s.Context(), query, args...).Scan(&status))
	return status
}

const noProcess = "0000000000000000"

// enqueue puts an attempt of another process, which may not exist, into the queue.
func (s *stage) enqueue(c conn, process string, share backend.Share) backend.Request {
	s.Helper()
	req := s.share(share)
	status := s.call(c, "acquire", s.name(), req.Owner, process, "x", req.TTL.Microseconds(), share.Weight, share.Capacity, true,
		strings.Repeat("0", 32), true)
	if status != "held" {
		s.Fatalf("an attempt of process %s: want it to wait, got %s", process, status)
	}
	return req
}

// info returns the owners of the holders and of the waiters, in the order of their tokens and places.
func (s *stage) info() (holders, waiters []string) {
	s.Helper()
	info, err := s.b.Inspect(s.Context(), s.key)
	must(s, err)
	if info.Holder != nil {
		for _, h := range append([]backend.Holder{*info.Holder}, info.Others...) {
			holders = append(holders, h.Owner)
		}
	}
	for _, w := range info.Waiters {
		waiters = append(waiters, w.Owner)
	}
	return holders, waiters
}

func (s *stage) lost(what string, err error) {
	s.Helper()
	if !errors.Is(err, backend.ErrLost) {
		s.Errorf("%s: want ErrLost, got %v", what, err)
	}
}

// next returns the grant of a waiter.
func (s *stage) next(got <-chan outcome) backend.Grant {
	s.Helper()
	select {
	case o := <-got:
		must(s, o.err)
		return o.g
	case <-time.After(20 * time.Second):
		s.Fatal("the waiter was not granted within 20 s")
		return nil
	}
}

// blocked waits until one statement waits for a row.
func (s *stage) blocked() {
	s.Helper()
	must(s, eventually(func() error {
		var stuck int
		err := s.admin.QueryRow(s.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&stuck)
		if err == nil && stuck != 1 {
			err = fmt.Errorf("%d statements wait for the row", stuck)
		}
		return err
	}))
}

// begin begins a transaction of another client.
func (s *stage) begin() pgx.Tx {
	s.Helper()
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// behindProxy opens a backend behind a proxy.
func (s *stage) behindProxy(params ...string) (*pglock.Backend, *provision.Proxy) {
	p := provision.NewProxy(s, s.s.Addr())
	return open(s, strings.Replace(pgtest.With(s.s, nil, params...), s.s.Addr(), p.Addr(), 1)), p
}
