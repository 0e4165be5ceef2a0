package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
)

// TestStaleHolderCannotCommit: a transaction that began while the lock was held calls
// Guard after the lock was lost, at each level.
func TestStaleHolderCannotCommit(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	sql(t, admin, "CREATE TABLE stock (item text PRIMARY KEY, n int NOT NULL, fence bigint NOT NULL DEFAULT 0); INSERT INTO stock VALUES ('x', 100)")
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		req := request(string(level), time.Hour)
		g, err := b.TryAcquire(t.Context(), req)
		must(t, err)
		sell := func(lose func()) error {
			tx, err := admin.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			must(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			var n int
			must(t, tx.QueryRow(t.Context(), "SELECT n FROM stock WHERE item = 'x'").Scan(&n)) // takes the snapshot
			lose()
			if err := b.Guard(t.Context(), tx, req.Key, req.Owner, g.Token()); err != nil {
				return err
			}
			if _, err := tx.Exec(t.Context(), "UPDATE stock SET n = $1 WHERE item = 'x'", n-1); err != nil {
				return err
			}
			return tx.Commit(t.Context())
		}
		if err := sell(func() {}); err != nil {
			t.Errorf("%s: the holder: want nil, got %v", level, err)
		}
		err = sell(func() {
			if _, err := b.Break(t.Context(), req.Key, ""); err != nil {
				t.Fatal(err)
			}
			if _, err := b.TryAcquire(t.Context(), request(req.Key, time.Hour)); err != nil {
				t.Fatal(err)
			}
		})
		var pg *pgconn.PgError
		undone := level != pgx.ReadCommitted && errors.As(err, &pg) && pg.Code == "40001"
		if !undone && !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: a stale holder: want ErrLost, or 40001 where the level has it, got %v", level, err)
		}
		// a new transaction, as after 40001
		if err := sell(func() {}); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: a stale holder, again: want ErrLost, got %v", level, err)
		}
	}
	var n int
	must(t, admin.QueryRow(t.Context(), "SELECT n FROM stock").Scan(&n))
	if n != 97 {
		t.Errorf("100 less one for each level is 97, got %d", n)
	}
}

// guarded is a reader in whose transaction Guard was called.
func (s *stage) guarded() (req backend.Request, g backend.Grant, commit func()) {
	s.Helper()
	req = s.share(backend.Reader)
	g, err := s.b.TryAcquire(s.Context(), req)
	must(s, err)
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	must(s, s.b.Guard(s.Context(), tx, s.key, req.Owner, g.Token()))
	return req, g, func() { must(s, tx.Commit(s.Context())) }
}

// passesBy takes and releases a reader's lock, and fails if one of them waits for a row.
func (s *stage) passesBy() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
	defer cancel()
	g, err := s.b.TryAcquire(ctx, s.share(backend.Reader))
	must(s, err)
	must(s, g.Release(ctx))
}

// guardOfReader: the transaction of a reader depends on its lease. The reader renews meanwhile, and its own end waits for
// the transaction, but delays no other.
func guardOfReader(s *stage) {
	for _, end := range []func(backend.Grant) error{
		func(g backend.Grant) error { return g.Release(s.Context()) },
		func(backend.Grant) error { _, err := s.b.Break(s.Context(), s.key, ""); return err },
	} {
		_, g, commit := s.guarded()
		must(s, g.Renew(s.Context(), time.Hour))
		s.passesBy()
		ended := make(chan error, 1)
		go func() { ended <- end(g) }()
		s.blocked()
		s.passesBy()
		commit()
		must(s, <-ended)
	}
	must(s, s.try().Release(s.Context()))
}

// guardOfExpiredReader: a reader that has expired stays until its transaction ends. Neither the others nor those that have
// expired wait for it.
func guardOfExpiredReader(s *stage) {
	dead := s.share(backend.Reader)
	_, err := s.b.TryAcquire(s.Context(), dead)
	must(s, err)
	req, g, commit := s.guarded()
	other := s.tryShare(backend.Reader)
	s.expireShares(dead.Owner)
	s.expireShares(req.Owner)
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
	defer cancel()
	must(s, other.Release(ctx))
	s.passesBy()
	if _, err := s.b.TryAcquire(ctx, request(s.key, time.Hour)); !errors.Is(err, backend.ErrLocked) {
		s.Errorf("a writer, while the transaction of the reader is open: want ErrLocked, got %v", err)
	}
	var left string
	must(s, s.admin.QueryRow(s.Context(), "SELECT string_agg(waiter, ',') FROM interlock WHERE name = $1 AND place < 0",
		[]byte("lock:"+s.key)).Scan(&left))
	if left != req.Owner {
		s.Errorf("want the row of the guarded reader %s left, got %s", req.Owner, left)
	}
	got := waitFor(s, s.b, request(s.key, time.Hour))
	commit()
	must(s, s.next(got).Release(s.Context()))
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	s.lost("Guard of a reader that has expired", s.b.Guard(s.Context(), tx, s.key, req.Owner, g.Token()))
	must(s, tx.Rollback(s.Context()))
}

// TestFence tests the pattern of docs/backends/postgresql.md for data in another
// database than the locks: two buyers of 60 of a stock of 100.
func TestFence(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	sql(t, admin, "CREATE TABLE stock (item text PRIMARY KEY, n int NOT NULL, fence bigint NOT NULL DEFAULT 0); INSERT INTO stock VALUES ('x', 100)")
	write := func(n int, token uint64) int64 {
		tag, err := admin.Exec(t.Context(), "UPDATE stock SET n = $1, fence = $2 WHERE item = 'x' AND fence < $2", n, int64(token))
		must(t, err)
		return tag.RowsAffected()
	}
	first, err := b.TryAcquire(t.Context(), request("k", time.Hour))
	must(t, err)
	_, err = b.Break(t.Context(), "k", "") // the first buyer has read 100 and is stopped past its lease
	must(t, err)
	second, err := b.TryAcquire(t.Context(), request("k", time.Hour))
	must(t, err)
	for _, c := range []struct {
		what  string
		n     int
		token uint64
		rows  int64
	}{
		{"the second buyer", 40, second.Token(), 1},
		{"the first buyer, late", 40, first.Token(), 0},
		{"the second buyer again, after a lost reply", 40, second.Token(), 0},
	} {
		if got := write(c.n, c.token); got != c.rows {
			t.Errorf("%s: want %d rows written, got %d", c.what, c.rows, got)
		}
	}
}
