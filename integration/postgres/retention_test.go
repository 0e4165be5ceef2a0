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
	sql(t, admin, `UPDATE interlock SET granted = granted - interval '2 hours', token = token - 7200000000 WHERE name IN ('lock:old', 'lock:held')`)
	n, err := b.Sweep(t.Context(), time.Hour)
	must(t, err)
	if n != 1 {
		t.Errorf("rows deleted: want 1, got %d", n)
	}
	// As if the server's clock had been set back by an hour: the floor is an hour ahead of it.
	sql(t, admin, "UPDATE interlock SET token = token + 3600000000, granted = granted - interval '2 hours' WHERE name = 'lock:recent'")
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
	sql(t, admin, `INSERT INTO interlock (name, place, token, granted)
		SELECT convert_to('lock:' || i, 'UTF8'), 0, 9000000000000000 + i, now() - interval '2 minutes' FROM generate_series(1, 5000) i`)
	var left int
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
		must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM interlock WHERE name <> ''").Scan(&left))
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
	sql(t, admin, `INSERT INTO interlock (name, place, token, granted)
		SELECT convert_to('lock:' || i, 'UTF8'), 0, 1, CASE WHEN i % 5 = 0 THEN now() ELSE 'epoch' END FROM generate_series(1, 2500) i`)
	before, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	n, err := b.Sweep(t.Context(), time.Hour)
	must(t, err)
	after, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	if n != 2000 || after-before != 4 { // 2,500 rows and the floor; the last one finds no row
		t.Errorf("want 2000 of 2500 rows deleted by 4 statements, got %d by %d", n, after-before)
	}
}

// TestDeadQueue: a queue whose waiters have all died does not refuse a TryLock, and its
// row is swept. A queue that may have a live waiter stays.
func TestDeadQueue(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	for _, key := range []string{"used again", "swept", "alive"} {
		g, err := b.TryAcquire(t.Context(), request(key, time.Hour))
		must(t, err)
		must(t, g.Release(t.Context()))
	}
	sql(t, admin, `UPDATE interlock SET owner = repeat('0', 32), token = 1, granted = now() - interval '40 days', expires = now() - interval '3 hours',
		last = 2 WHERE place = 0 AND name <> ''; INSERT INTO interlock (name, place, waiter, process, ttl) SELECT name, place + n, encode(name, 'hex') || n,
		repeat('0', 16) || ' x', 3600000 FROM interlock, generate_series(1, 2) n WHERE place = 0 AND name <> ''`)
	sql(t, admin, `UPDATE interlock SET expires = now() - interval '110 minutes' WHERE name = 'lock:alive' AND place = 0`)
	if _, err := b.TryAcquire(t.Context(), request("used again", time.Hour)); err != nil {
		t.Errorf("a lock whose waiters died three hours ago: want it granted, got %v", err)
	}
	n, err := b.Sweep(t.Context(), time.Hour)
	must(t, err)
	if n != 1 {
		t.Errorf("rows swept: want 1, got %d", n)
	}
	if _, err := b.TryAcquire(t.Context(), request("alive", time.Hour)); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("a lock with waiters of an hour, 110 minutes after its lease: want ErrLocked, got %v", err)
	}
}
