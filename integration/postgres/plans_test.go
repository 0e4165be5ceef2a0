package postgres_test

import (
	"context"
	"fmt"
	"slices"
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

const (
	manyNames, manyWaiters, someReaders = 300_000, 30_000, 300

	// mostRead is how many rows an operation may read. It returns one; it looks at the first 16 waiters twice.
	mostRead = 100
)

// Settings of a role that make the server plan otherwise.
var planSettings = []string{
	"", "jit_above_cost=1", "enable_indexscan=off", "enable_nestloop=off", "enable_sort=off", "enable_bitmapscan=off",
	"enable_indexonlyscan=off", "plan_cache_mode=force_generic_plan", "random_page_cost=1000",
}

// TestPlans: with many names and many waiters no operation reads more than a few rows, whatever the server knows of the
// tables, and whatever the settings of the role are.
func TestPlans(t *testing.T) { onEach(t, plans) }

func plans(t *testing.T, s *provision.Server, admin *pgxpool.Pool) {
	b := open(t, pgtest.With(s, nil))
	_, version := schemaOf(t, pglock.DefaultTable)
	st := &stage{t, s, admin, b, "", version}
	writers, readers := st.beside(t, "writers"), st.beside(t, "readers")
	left, free := st.beside(t, "left"), st.beside(t, "free")
	must(t, free.try().Release(t.Context()))
	writers.crowd(writers.share(backend.Share{}))
	for range someReaders - 1 {
		readers.tryShare(backend.Reader)
	}
	readers.crowd(readers.share(backend.Reader))
	left.crowd(left.share(backend.Share{}))
	sql(t, admin, fmt.Sprintf(`DELETE FROM interlock_places WHERE name = 'lock:left' AND kind = 'w' AND place <= %d;
		UPDATE interlock SET served = %[1]d, waiters = 100 WHERE name = 'lock:left'`, manyWaiters-100))
	sql(t, admin, fmt.Sprintf(`INSERT INTO interlock (name, token, expires)
		SELECT convert_to('lock:old-' || i, 'UTF8'), i, %s FROM generate_series(1, %d) i`, past, manyNames))
	for i, setting := range planSettings {
		role := fmt.Sprint("planner", i)
		sql(t, admin, "CREATE ROLE "+role+" LOGIN IN ROLE pg_write_all_data, pg_read_all_data")
		if name, value, ok := strings.Cut(setting, "="); ok {
			sql(t, admin, fmt.Sprintf("ALTER ROLE %s SET %s = '%s'", role, name, value))
		}
	}
	for _, when := range []string{"new tables", "after ANALYZE"} {
		if when == "after ANALYZE" {
			sql(t, admin, "ANALYZE interlock; ANALYZE interlock_places")
		}
		for i, setting := range planSettings {
			t.Run(when+"/"+setting, func(t *testing.T) {
				conn, err := pgx.Connect(t.Context(), as(pgtest.With(s, nil), fmt.Sprint("planner", i)))
				must(t, err)
				defer conn.Close(context.Background())
				for _, st := range []*stage{writers, readers, left, free} {
					for op, args := range st.operations() {
						most := int64(mostRead)
						if n := reads(t, conn, op, version, args); n > most || n == 0 {
							t.Errorf("%s of %s: want it to read 1 to %d rows, it read %d", op, st.key, most, n)
						}
					}
				}
			})
		}
	}
	fast(t, s, admin, readers)
}

// crowd makes a holder, and many waiters of a dead process behind it.
func (s *stage) crowd(holder backend.Request) {
	s.Helper()
	_, err := s.b.TryAcquire(s.Context(), holder)
	must(s, err)
	_, err = s.admin.Exec(s.Context(), `INSERT INTO interlock_places (name, owner, kind, place, process, metadata, since, ttl)
		SELECT $1, $3 || ' waiter ' || i, 'w', i, '0000000000000000', repeat('x', 40), 1, 3600000000
		FROM generate_series(1, $2::int) i`, s.name(), manyWaiters, s.key)
	must(s, err)
	set := "UPDATE interlock SET waiters = $2::int, last = $2::int WHERE name = $1"
	_, err = s.admin.Exec(s.Context(), set, s.name(), manyWaiters)
	must(s, err)
}

// operations returns the arguments of the functions for each operation of a lock.
func (s *stage) operations() map[string][]any {
	s.Helper()
	holders := s.owners()
	holder, last := append(holders, "no holder")[0], fmt.Sprint(s.key, " waiter ", manyWaiters)
	const process = "1111111111111111"
	rule := func(op, owner string) []any {
		return []any{op, s.name(), owner, process, "", 0, 0, 0, false, "", "", true}
	}
	acquire := func(owner string, weight int, queue bool) []any {
		return []any{s.name(), owner, process, "x", 60_000_000, weight, 0, queue, "proof", true}
	}
	together := func(args []any) []any { return append(args[:len(args)-1:len(args)-1], false) }
	renew := func(exactly, waits bool) []any {
		return []any{s.name(), []string{holder}, process, []int64{60_000_000}, []bool{exactly}, waits}
	}
	return map[string][]any{
		"acquire TryLock":    acquire("new", 0, false),
		"acquire Lock":       acquire("new", 0, true),
		"acquire poll":       acquire(last, 0, true),
		"acquire TryRLock":   acquire("new", 1, false),
		"acquire RLock":      acquire("new", 1, true),
		"acquire in a batch": together(acquire("new", 0, true)),
		"renew alone":        renew(false, true),
		"renew in a batch":   renew(false, false),
		"renew exactly":      renew(true, true),
		"end release":        {"end", s.name(), holder, process, false, "secret", true},
		"end waiter":         {"end", s.name(), last, process, true, "", true},
		"end of none":        {"end", s.name(), "new", process, true, "", true},
		"rule downgrade":     rule("downgrade", holder),
		"rule pass":          rule("pass", ""),
		"rule break":         rule("break", holder),
		"rule wrong break":   rule("break", "new"),
		"rule forget waiter": rule("forget", last),
	}
}

// owners is info without waiters, which may be many.
func (s *stage) owners() []string {
	s.Helper()
	rows, err := s.admin.Query(s.Context(), `SELECT owner FROM interlock WHERE name = $1 AND owner IS NOT NULL
		UNION ALL SELECT owner FROM interlock_places WHERE name = $1 AND kind = 'h'`, s.name())
	must(s, err)
	holders, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(s, err)
	return holders
}

// reads returns how many rows of tables and entries of indexes an operation reads at most, of which nothing remains.
// After five times the server may use a plan for all arguments.
func reads(t *testing.T, conn *pgx.Conn, op, version string, args []any) (most int64) {
	t.Helper()
	function, _, _ := strings.Cut(op, " ")
	places := make([]string, len(args))
	for i := range args {
		places[i] = fmt.Sprint("$", i+1)
	}
	relations := "SELECT oid FROM pg_class WHERE relname LIKE 'interlock%' AND relkind IN ('r', 'i')"
	rows, err := conn.Query(t.Context(), relations)
	must(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	must(t, err)
	call := "SELECT FROM interlock_" + function + "_" + version + "(" + strings.Join(places, ", ") + ")"
	for range 7 {
		tx, err := conn.Begin(t.Context())
		must(t, err)
		count := func() (n int64) {
			must(t, tx.QueryRow(t.Context(), `SELECT sum(greatest(pg_stat_get_xact_tuples_returned(c.oid),
				pg_stat_get_xact_tuples_fetched(c.oid)))::bigint FROM pg_class c WHERE c.oid = ANY ($1)`, tables).Scan(&n))
			return n
		}
		before := count() // of earlier transactions too
		_, err = tx.Exec(t.Context(), call, args...)
		must(t, err)
		n := count() - before
		must(t, tx.Rollback(t.Context()))
		most = max(most, n)
	}
	return most
}

// fast compares a reader's lock beside many others with an exclusive lock, at a role whose statements the server would
// compile, which takes far longer than to execute them.
func fast(t *testing.T, s *provision.Server, admin *pgxpool.Pool, readers *stage) {
	t.Helper()
	sql(t, admin, `DELETE FROM interlock_places WHERE name = 'lock:readers' AND kind = 'w';
		UPDATE interlock SET waiters = 0 WHERE name = 'lock:readers'`)
	sql(t, admin, "ANALYZE interlock_places; SELECT pg_stat_statements_reset()")
	b := open(t, as(pgtest.With(s, nil), "planner1"))
	median := func(req func() backend.Request) time.Duration {
		var all []time.Duration
		for range 30 {
			begun := time.Now()
			g, err := b.TryAcquire(t.Context(), req())
			must(t, err)
			must(t, g.Release(t.Context()))
			all = append(all, time.Since(begun))
		}
		slices.Sort(all)
		return quantile(all, .5)
	}
	lock := median(func() backend.Request { return request("fast", time.Hour) })
	rlock := median(func() backend.Request { return readers.share(backend.Reader) })
	t.Logf("a lock and unlock takes %v, that of a reader beside %d others %v", lock, someReaders, rlock)
	if rlock > 8*lock {
		t.Errorf("a reader beside %d others takes %v, an exclusive lock %v", someReaders, rlock, lock)
	}
	neverCompiled(t, admin)
}
