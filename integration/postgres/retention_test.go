package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
)

// TestSweep deletes rows that were not used for long, and tokens still rise.
func TestSweep(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	tokens := map[string]uint64{}
	for _, key := range []string{"old", "held", "recent"} {
		g, err := b.TryAcquire(t.Context(), request(key, time.Hour))
		must(t, err)
		tokens[key] = g.Token()
		if key != "held" {
			must(t, g.Release(t.Context()))
		}
	}
	sql(t, admin, `UPDATE interlock SET expires = expires - 7200000000, token = token - 7200000000 WHERE name = 'lock:old'`)
	n, err := b.Sweep(t.Context(), time.Hour)
	must(t, err)
	if n != 1 {
		t.Errorf("rows deleted: want 1, got %d", n)
	}
	// As if the server's clock had been set back by an hour: the floor is an hour ahead of it.
	sql(t, admin, "UPDATE interlock SET token = token + 3600000000, expires = expires - 7200000000 WHERE name = 'lock:recent'")
	n, err = b.Sweep(t.Context(), time.Hour)
	must(t, err)
	if n != 1 {
		t.Errorf("rows deleted: want 1, got %d", n)
	}
	for key, last := range map[string]uint64{"old": tokens["old"], "recent": tokens["recent"] + 3600e6} {
		g, err := b.TryAcquire(t.Context(), request(key, time.Second))
		must(t, err)
		if g.Token() <= last {
			t.Errorf("token of %s after a sweep: %d after %d", key, g.Token(), last)
		}
	}
}

// TestRetention: names that were used once are gone after the retention, without a call of
// Sweep, and their tokens rise.
func TestRetention(t *testing.T) {
	s, admin := server(t)
	open(t, pgtest.With(s, nil, "retention", "1m"))
	sql(t, admin, `INSERT INTO interlock (name, token, expires)
		SELECT convert_to('lock:' || i, 'UTF8'), 9000000000000000 + i, `+past+` - 120000000 FROM generate_series(1, 5000) i`)
	var left int
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
		must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM interlock WHERE name >= '\\x01'").Scan(&left))
		if left == 0 {
			break
		}
	}
	g, err := open(t, pgtest.With(s, nil)).TryAcquire(t.Context(), request("7", time.Second))
	must(t, err)
	if left != 0 || g.Token() <= 9000000000005000 {
		t.Errorf("%d rows are left, and a name used again has token %d", left, g.Token())
	}
}

// TestSweepInPages: no statement of Sweep looks at more than 1,000 rows.
func TestSweepInPages(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	sql(t, admin, `INSERT INTO interlock (name, token, expires)
		SELECT convert_to('lock:' || i, 'UTF8'), 1, CASE WHEN i % 5 = 0 THEN `+past+` ELSE 0 END FROM generate_series(1, 2500) i`)
	before, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	n, err := b.Sweep(t.Context(), time.Hour)
	must(t, err)
	after, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	if n != 2000 || after-before != 4 { // the last one finds no row
		t.Errorf("want 2000 of 2500 rows deleted by 4 statements, got %d by %d", n, after-before)
	}
}

// TestDeadQueue: a lock whose waiters have all died is swept. One that may have a live waiter stays.
func TestDeadQueue(t *testing.T) {
	s := newStage(t)
	for key, hours := range map[string]int{"swept": 3, "alive": 1} {
		st := s.beside(t, key)
		st.try()
		for range 2 {
			st.enqueue(s.admin, noProcess, backend.Share{})
		}
		_, err := s.admin.Exec(t.Context(), "UPDATE interlock SET expires = "+past+" - $2::bigint WHERE name = $1", st.name(), int64(hours)*3600e6)
		must(t, err)
	}
	n, err := s.b.Sweep(t.Context(), time.Hour)
	must(t, err)
	if n != 1 {
		t.Errorf("rows swept: want 1, got %d", n)
	}
	if _, waiters := s.beside(t, "swept").info(); len(waiters) != 0 {
		t.Errorf("a lock that was swept: want no waiter left, got %q", waiters)
	}
	if _, err := s.b.TryAcquire(t.Context(), request("alive", time.Hour)); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("a lock with waiters of an hour, an hour after its lease: want ErrLocked, got %v", err)
	}
}

// TestSweepOfShares: a name whose last holder expired long ago is removed, and one with a live holder stays. Tokens rise.
func TestSweepOfShares(t *testing.T) {
	s := newStage(t)
	var last uint64
	for _, key := range []string{"dead", "alive"} {
		for range 2 {
			last = s.beside(t, key).tryShare(backend.Reader).Token()
		}
	}
	sql(t, s.admin, `UPDATE interlock SET expires = expires - 18000000000 WHERE name IN ('lock:dead', 'lock:alive');
		UPDATE interlock_places SET expires = expires - 18000000000 WHERE name = 'lock:dead'`)
	n, err := s.b.Sweep(t.Context(), time.Hour)
	must(t, err)
	dead, _ := s.beside(t, "dead").info()
	alive, _ := s.beside(t, "alive").info()
	if n != 1 || len(dead) != 0 || len(alive) != 2 {
		t.Errorf("want one lock removed with its holders, and two holders of the other left, got %d, %q and %q", n, dead, alive)
	}
	if g := s.beside(t, "dead").try(); g.Token() <= last-2 {
		t.Errorf("token after a sweep: %d after %d", g.Token(), last)
	}
}
