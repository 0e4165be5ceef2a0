package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// TestGuardConditions: Guard depends on the present grant only.
func TestGuardConditions(t *testing.T) {
	st := newStage(t)
	shares := map[string]backend.Share{"exclusive": {}, "reader": backend.Reader, "permits": {Weight: 2, Capacity: 3}}
	for key, share := range shares {
		s := st.beside(t, key)
		req := s.share(share)
		g, err := s.b.TryAcquire(s.Context(), req)
		must(s, err)
		guard := func(owner string, token uint64) error {
			tx := s.begin()
			err := s.b.Guard(s.Context(), tx, s.key, owner, token)
			must(s, tx.Rollback(s.Context()))
			return err
		}
		if err := guard(req.Owner, g.Token()); err != nil {
			s.Errorf("%s: the holder: %v", key, err)
		}
		s.lost(key+", another token", guard(req.Owner, g.Token()+1))
		s.lost(key+", another owner", guard(request("", 0).Owner, g.Token()))
		s.expire(req.Owner)
		s.lost(key+", an expired grant", guard(req.Owner, g.Token()))
	}
}

// guarded is a holder in whose transaction Guard was called.
type guarded struct {
	*stage
	req backend.Request
	g   backend.Grant
	tx  pgx.Tx
}

func (s *stage) guarded(share backend.Share) *guarded {
	s.Helper()
	req := s.share(share)
	g, err := s.b.TryAcquire(s.Context(), req)
	must(s, err)
	tx := s.begin()
	must(s, s.b.Guard(s.Context(), tx, s.key, req.Owner, g.Token()))
	return &guarded{s, req, g, tx}
}

// ends checks that end waits until the transaction has ended, and others do not wait for end.
func (g *guarded) ends(end func() error, beside func()) {
	g.Helper()
	before, err := pgtest.Commands(g.Context(), g.admin)
	must(g, err)
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	must(g, eventually(func() error { // it was refused, and asks again
		n, err := pgtest.Commands(g.Context(), g.admin)
		if err == nil && n < before+3 {
			err = fmt.Errorf("%d statements", n-before)
		}
		return err
	}))
	beside()
	select {
	case err := <-ended:
		g.Errorf("the holder has ended while its transaction is open: %v", err)
	default:
	}
	must(g, g.tx.Commit(g.Context()))
	must(g, <-ended)
}

// ways to end a holder.
func (g *guarded) ways() map[string]func() error {
	ways := map[string]func() error{
		"release":        func() error { return g.g.Release(g.Context()) },
		"break":          func() error { _, err := g.b.Break(g.Context(), g.key, ""); return err },
		"break of owner": func() error { _, err := g.b.Break(g.Context(), g.key, g.req.Owner); return err },
	}
	if g.req.Share.Exclusive() {
		ways["downgrade"] = func() error { return g.g.(backend.Downgrader).Downgrade(g.Context()) }
	}
	return ways
}

// TestGuardedHolder: nothing waits for a transaction with Guard but the end of its holder.
func TestGuardedHolder(t *testing.T) {
	st := newStage(t)
	for _, way := range []string{"release", "break", "break of owner", "downgrade"} {
		t.Run(way, func(t *testing.T) {
			s := st.beside(t, strings.ReplaceAll(way, " ", "-"))
			g := s.guarded(backend.Share{})
			other := open(t, pgtest.With(s.s, nil))
			beside := func() {
				t.Helper()
				ctx := s.atOnce()
				must(t, g.g.Renew(ctx, time.Hour))
				twice := slices.Repeat([]backend.Renewal{{Grant: g.g, TTL: time.Hour}}, 2)
				for _, err := range s.b.RenewBatch(ctx, twice) {
					must(t, err)
				}
				if _, err := other.TryAcquire(ctx, s.share(backend.Share{})); !errors.Is(err, backend.ErrLocked) {
					t.Errorf("TryAcquire: want ErrLocked, got %v", err)
				}
			}
			beside()
			got := waitFor(t, other, s.share(backend.Share{}))
			beside()
			g.ends(g.ways()[way], beside)
			if way == "downgrade" {
				must(t, g.g.Release(t.Context()))
			}
			must(t, s.next(got).Release(t.Context()))
		})
	}
}

// TestGuardedReader: the transaction of one of several readers delays no other.
func TestGuardedReader(t *testing.T) {
	st := newStage(t)
	for _, way := range []string{"release", "break of owner", "break"} {
		t.Run(way, func(t *testing.T) {
			s := st.beside(t, strings.ReplaceAll(way, " ", "-"))
			kept := s.tryShare(backend.Reader)
			g := s.guarded(backend.Reader)
			beside := func() {
				t.Helper()
				ctx := s.atOnce()
				must(t, g.g.Renew(ctx, time.Hour))
				must(t, kept.Renew(ctx, time.Hour))
				passing, err := s.b.TryAcquire(ctx, s.share(backend.Reader))
				must(t, err)
				must(t, passing.Release(ctx))
			}
			beside()
			g.ends(g.ways()[way], beside)
			if way == "break" {
				s.lost("Renew after a break of all", kept.Renew(t.Context(), time.Hour))
			} else {
				must(t, kept.Release(t.Context()))
			}
			must(t, s.try().Release(t.Context()))
		})
	}
}

// TestGuardedReaderExpires: a reader that has expired stays until its transaction ends. Neither the other readers nor
// another one that has expired wait for it, but a writer does.
func TestGuardedReaderExpires(t *testing.T) {
	s := newStage(t)
	dead := s.share(backend.Reader)
	_, err := s.b.TryAcquire(s.Context(), dead)
	must(t, err)
	g, other := s.guarded(backend.Reader), s.tryShare(backend.Reader)
	s.expire(dead.Owner)
	s.expire(g.req.Owner)
	ctx := s.atOnce()
	must(t, other.Renew(ctx, time.Hour))
	passing, err := s.b.TryAcquire(ctx, s.share(backend.Reader))
	must(t, err)
	must(t, passing.Release(ctx))
	must(t, other.Release(ctx))
	if _, err := s.b.TryAcquire(ctx, s.share(backend.Share{})); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("a writer, while the transaction of the reader is open: want ErrLocked, got %v", err)
	}
	var left string
	owners := "SELECT string_agg(owner, ',') FROM interlock_places WHERE name = $1"
	must(t, s.admin.QueryRow(t.Context(), owners, s.name()).Scan(&left))
	if left != g.req.Owner {
		t.Errorf("want the row of the guarded reader %s left, got %s", g.req.Owner, left)
	}
	got := waitFor(t, s.b, s.share(backend.Share{}))
	must(t, g.tx.Commit(t.Context()))
	must(t, s.next(got).Release(t.Context()))
	s.lost("Guard of a reader that has expired", s.b.Guard(t.Context(), s.begin(), s.key, g.req.Owner, g.g.Token()))
}

// TestGuardAndTheTimeLimit: an end that waits for a transaction with Guard returns after the time limit, and has done
// nothing.
func TestGuardAndTheTimeLimit(t *testing.T) {
	s := newStage(t)
	s.b = open(t, pgtest.With(s.s, nil, "timeout", "500ms"))
	for _, share := range []backend.Share{{}, backend.Reader} {
		g := s.guarded(share)
		for way, end := range g.ways() {
			if err := end(); err == nil || backend.OutcomeUnknown(err) || !strings.Contains(err.Error(), "Guard") {
				t.Errorf("%s, %s: want an error of known outcome that names Guard, got %v", share, way, err)
			}
		}
		must(t, g.g.Renew(t.Context(), time.Hour))
		must(t, g.tx.Rollback(t.Context()))
		must(t, g.g.Release(t.Context()))
	}
}

// TestFence tests the pattern of docs/fencing.md for data in another
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
