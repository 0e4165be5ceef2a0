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
