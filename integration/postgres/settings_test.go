package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

// Settings of a role with which each operation works as without. The first ones change the text of results, which
// matters where statements are not prepared.
var harmless = []string{
	"DateStyle=German", "IntervalStyle=iso_8601", "TimeZone=Asia/Kathmandu", "bytea_output=escape", "extra_float_digits=-10",
	"client_encoding=LATIN1", "client_min_messages=debug1", "standard_conforming_strings=off", "transform_null_equals=on",
	"statement_timeout=5s", "lock_timeout=20ms", "idle_in_transaction_session_timeout=20ms", "idle_session_timeout=300ms",
	"default_transaction_isolation=serializable", "default_transaction_deferrable=on", "row_security=off",
	"enable_nestloop=off", "enable_sort=off", "enable_indexscan=off", "enable_indexonlyscan=off", "enable_hashjoin=off",
	"enable_mergejoin=off", "enable_hashagg=off", "enable_material=off", "enable_seqscan=off", "enable_bitmapscan=off",
	"jit_above_cost=100", "jit=off", "plan_cache_mode=force_generic_plan", "plan_cache_mode=force_custom_plan", "work_mem=64kB",
	"max_parallel_workers_per_gather=4", "synchronous_commit=off", "cursor_tuple_fraction=1", "search_path=pg_catalog,public",
}

const texts = 6 // of harmless

// TestSettings: the settings of a role change no operation, prepared or not, and no function is compiled.
func TestSettings(t *testing.T) { onEach(t, settings) }

func onEach(t *testing.T, f func(*testing.T, *provision.Server, *pgxpool.Pool)) {
	for _, flavour := range provision.PostgresFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			s := provision.NewPostgres(t, flavour, provision.PostgresUnsynced, "autovacuum=off")
			f(t, s, pgtest.Admin(t, s))
		})
	}
}

func settings(t *testing.T, s *provision.Server, admin *pgxpool.Pool) {
	open(t, pgtest.With(s, nil)) // creates the table
	sql(t, admin, "SELECT pg_stat_statements_reset()")
	for i, setting := range harmless {
		name, value, _ := strings.Cut(setting, "=")
		role := fmt.Sprint("role", i)
		if name != "search_path" {
			value = "'" + value + "'"
		}
		sql(t, admin, fmt.Sprintf(`CREATE ROLE %s LOGIN IN ROLE pg_write_all_data, pg_read_all_data; ALTER ROLE %[1]s SET %s = %s`, role, name, value))
		t.Run(setting, func(t *testing.T) {
			everything(t, open(t, as(pgtest.With(s, nil), role)), setting)
			if i < texts {
				everything(t, open(t, as(pgtest.With(s, nil, "listen", "false"), role)), setting+" not prepared")
			}
		})
	}
	neverCompiled(t, admin)
}

// everything calls each operation once.
func everything(t *testing.T, b *pglock.Backend, key string) {
	t.Helper()
	const ttl = time.Minute
	req := request(key, ttl)
	g, err := b.TryAcquire(t.Context(), req)
	must(t, err)
	if _, err := b.TryAcquire(t.Context(), request(key, ttl)); err == nil {
		t.Fatal("two holders")
	}
	got := waitFor(t, b, request(key, ttl))
	must(t, g.Renew(t.Context(), ttl))
	info, err := b.Inspect(t.Context(), key)
	must(t, err)
	if info.Holder == nil || info.Holder.Owner != req.Owner || info.Holder.Metadata != req.Metadata || len(info.Waiters) != 1 {
		t.Errorf("Inspect: got %+v", info)
	}
	must(t, g.Release(t.Context()))
	o := <-got
	must(t, o.err)
	renewals := []backend.Renewal{{Grant: o.g, TTL: ttl}}
	for i := range 3 {
		g, err := b.TryAcquire(t.Context(), request(fmt.Sprint(key, i), ttl))
		must(t, err)
		renewals = append(renewals, backend.Renewal{Grant: g, TTL: ttl})
	}
	for _, err := range b.RenewBatch(t.Context(), renewals) {
		must(t, err)
	}
	must(t, o.g.(backend.Downgrader).Downgrade(t.Context()))
	reader := request(key, ttl)
	reader.Share = backend.Reader
	second, err := b.TryAcquire(t.Context(), reader)
	must(t, err)
	for _, err := range b.RenewBatch(t.Context(), []backend.Renewal{{Grant: o.g, TTL: ttl}, {Grant: second, TTL: ttl}}) {
		must(t, err)
	}
	must(t, second.(backend.Keeper).Keep(t.Context(), ttl))
	listed := 0
	must(t, b.List(t.Context(), func(i backend.Info) bool {
		if strings.HasPrefix(i.Name, key) {
			listed++
		}
		return true
	}))
	if listed != 4 {
		t.Errorf("List: want 4 locks of %q, got %d", key, listed)
	}
	must(t, second.Release(t.Context()))
	if h, err := b.Break(t.Context(), key, ""); err != nil || h == nil {
		t.Errorf("Break: %v, %v", h, err)
	}
	must(t, b.Abandon(t.Context(), request(key, ttl)))
	if _, err := b.Sweep(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

// neverCompiled checks that the server has compiled no call of a function, and not what opening reads, if it has a compiler,
// as PostgreSQL 15 of the tests has. The statements of Inspect, List, Guard and Sweep are not functions.
func neverCompiled(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	rows, err := admin.Query(t.Context(), `SELECT jit_functions, query FROM pg_stat_statements WHERE query ~ 'interlock_(acquire|renew|end|rule)_|^SELECT t\.\*, p' AND jit_functions > 0`)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var functions int64
		var query string
		must(t, rows.Scan(&functions, &query))
		t.Errorf("the server compiled %d functions of\n%s", functions, query)
	}
	must(t, rows.Err())
}

// TestIdleSessions: the server ends idle sessions of the role, but not the one that listens.
func TestIdleSessions(t *testing.T) {
	s, admin := server(t)
	sql(t, admin, "CREATE ROLE app LOGIN IN ROLE pg_write_all_data, pg_read_all_data; ALTER ROLE app SET idle_session_timeout = '1s'")
	holder := open(t, pgtest.With(s, nil))
	for _, listen := range []string{"true", s.Addr()} {
		b := open(t, as(pgtest.With(s, nil, "listen", listen), "app"))
		reports := make(chan error, 10)
		b.ReportStatus(func(_ string, err error) { reports <- err })
		g, err := holder.TryAcquire(t.Context(), request(listen, time.Minute))
		must(t, err)
		got := waitFor(t, b, request(listen, time.Minute))
		select {
		case err := <-reports:
			t.Errorf("listen=%s: %v", listen, err)
		case <-time.After(3 * time.Second):
		}
		must(t, g.Release(t.Context()))
		o := <-got
		must(t, o.err)
	}
}
