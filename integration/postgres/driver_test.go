package postgres_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/pglock"
)

// server starts a server for this test, which then runs in parallel with others.
func server(t *testing.T) (*provision.Server, *pgxpool.Pool) {
	t.Parallel()
	s := provision.NewPostgres(t, provision.AnyPostgres, provision.PostgresUnsynced)
	return s, pgtest.Admin(t, s)
}

// localServer is server for tests that need the files or the process of the server, which
// a container does not expose.
func localServer(t *testing.T) (*provision.Server, *pgxpool.Pool) {
	t.Parallel()
	s := provision.NewPostgres(t, provision.Postgres15, provision.PostgresUnsynced)
	if !strings.HasPrefix(s.Source, "binary") {
		t.Skipf("%s: %s: its files and process are out of reach", s.Flavour, s.Source)
	}
	return s, pgtest.Admin(t, s)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sql(t *testing.T, admin *pgxpool.Pool, text string) {
	t.Helper()
	_, err := admin.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
}

func open(t testing.TB, url string) *pglock.Backend {
	t.Helper()
	b, err := suite.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b.(*pglock.Backend)
}

func request(key string, ttl time.Duration) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: ttl, Metadata: "host ü%41"}
}

// as returns the URL with another user and a password.
func as(url, user string) string { return strings.Replace(url, "postgres@", user+":topsecret@", 1) }

func TestBadInputIsNamed(t *testing.T) {
	s, admin := server(t)
	sql(t, admin, `CREATE TABLE alien (name bytea PRIMARY KEY);
		CREATE TABLE later (name bytea PRIMARY KEY); COMMENT ON TABLE later IS 'interlock lock table, schema 9';
		CREATE TABLE older (name bytea PRIMARY KEY); COMMENT ON TABLE older IS 'interlock lock table, schema 4';
		CREATE TABLE half (name bytea PRIMARY KEY); COMMENT ON TABLE half IS 'interlock lock table, schema 5';
		CREATE ROLE stranger LOGIN; CREATE ROLE reader LOGIN;
		CREATE ROLE ro LOGIN; ALTER ROLE ro SET default_transaction_read_only = on`)
	open(t, pgtest.With(s, nil)) // creates the table
	sql(t, admin, "GRANT SELECT ON interlock, interlock_places TO reader")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	absent := free.Addr().String()
	must(t, free.Close())
	for name, c := range map[string]struct{ url, want string }{
		"quote in table":    {pgtest.With(s, nil, "table", `a"; DROP TABLE interlock`), "letters, digits and underscores"},
		"long table":        {pgtest.With(s, nil, "table", strings.Repeat("x", 64)), "at most 46"},
		"colon in prefix":   {pgtest.With(s, nil, "prefix", "a:b"), "prefix"},
		"sslmode":           {pgtest.With(s, nil, "sslmode", "maybe"), "verify-full"},
		"unknown parameter": {pgtest.With(s, nil, "tabel", "x"), `"tabel": unknown`},
		"no host":           {"postgres:///db", "host[:port]"},
		"no directory":      {"postgres:///db?host=run", "/database?host=/directory"},
		"two databases":     {"postgres:///db?host=/run&db=other", "parameter db"},
		"a host twice":      {pgtest.With(s, nil, "host", "/run"), "parameter host"},
		"no such socket":    {"postgres:///nowhere?db=db", "/nowhere/.s.PGSQL.5432"},
		"absent":            {as("postgres://postgres@"+absent+"/postgres?sslmode=disable", "u"), absent},
		"no table":          {pgtest.With(s, nil, "table", "missing", "create", "false"), `the table "missing" or "missing_places" is missing`},
		"no schema":         {pgtest.With(s, nil, "table", "nowhere.locks"), "3F000"},
		"alien table":       {pgtest.With(s, nil, "table", "alien"), "not created by this driver"},
		"newer table":       {pgtest.With(s, nil, "table", "later"), "schema 9"},
		"older table":       {pgtest.With(s, nil, "table", "older"), "set another table with table=, or drop it"},
		"half a table":      {pgtest.With(s, nil, "table", "half"), "another version"},
		"may not create":    {as(pgtest.With(s, nil, "table", "other"), "stranger"), "CREATE on the schema"},
		"may not read":      {as(pgtest.With(s, nil), "stranger"), "rights needed"},
		"wrong database":    {strings.Replace(pgtest.With(s, nil), "/postgres?", "/nosuch?", 1), "nosuch"},
		"read-only":         {as(pgtest.With(s, nil, "table", "ro"), "ro"), "read-only"},
	} {
		start := time.Now()
		b, err := suite.Open(t.Context(), c.url)
		if err == nil {
			_ = b.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: want an error that says %q and no password, got %v", name, c.want, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
	b := open(t, as(pgtest.With(s, nil), "reader"))
	if _, err := b.TryAcquire(t.Context(), request("k", time.Second)); err == nil || backend.OutcomeUnknown(err) || !strings.Contains(err.Error(), "INSERT, UPDATE and DELETE") {
		t.Errorf("acquire with a user that may only read: want the rights named, got %v", err)
	}
	var tables int
	must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE tablename IN ('other', 'missing', 'ro')").Scan(&tables))
	if tables != 0 {
		t.Errorf("%d tables were created by calls that failed", tables)
	}
}

func TestConcurrentCreation(t *testing.T) {
	s, admin := server(t)
	sql(t, admin, "CREATE SCHEMA deep")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			b, err := suite.Open(t.Context(), pgtest.With(s, nil, "table", "deep.Locks"))
			if err != nil {
				t.Error(err)
				return
			}
			_ = b.Close(t.Context())
		})
	}
	wg.Wait()
}

// TestLeastPrivileges calls all operations with the privileges of
// docs/backends/postgresql-administration.md.
func TestLeastPrivileges(t *testing.T) {
	s, admin := server(t)
	schema, err := pglock.Schema("locks.interlock")
	must(t, err)
	sql(t, admin, `CREATE SCHEMA locks; `+schema+`; CREATE ROLE app LOGIN;
		GRANT USAGE ON SCHEMA locks TO app; GRANT SELECT, INSERT, UPDATE, DELETE ON locks.interlock, locks.interlock_places TO app`)
	url := as(pgtest.With(s, nil, "table", "locks.interlock", "create", "false"), "app")
	a, b := open(t, url), open(t, url)
	req := request("k", 10*time.Second)
	g, err := a.TryAcquire(t.Context(), req)
	must(t, err)
	got := waitFor(t, b, request("k", 10*time.Second))
	must(t, g.Renew(t.Context(), 10*time.Second))
	info, err := a.Inspect(t.Context(), "k")
	must(t, err)
	if info.Holder == nil || info.Holder.Metadata != req.Metadata || len(info.Waiters) != 1 || info.Waiters[0].Metadata != req.Metadata {
		t.Errorf("Inspect: got %+v", info)
	}
	must(t, g.Release(t.Context()))
	next := <-got
	must(t, next.err)
	if next.g.Token() <= g.Token() {
		t.Errorf("tokens %d, %d", g.Token(), next.g.Token())
	}
	if h, err := a.Break(t.Context(), "k", ""); err != nil || h == nil {
		t.Errorf("Break: %v, %v", h, err)
	}
	must(t, a.Abandon(t.Context(), request("never", time.Second)))
	must(t, a.Ping(t.Context()))
	tx, err := admin.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := a.Guard(t.Context(), tx, "k", req.Owner, g.Token()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Guard of a broken grant: want ErrLost, got %v", err)
	}
}

type outcome struct {
	g   backend.Grant
	err error
}

// waitFor starts an attempt and returns when it waits.
func waitFor(t testing.TB, b *pglock.Backend, req backend.Request) <-chan outcome {
	t.Helper()
	waits, got := make(chan struct{}, 1), make(chan outcome, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() { g, err := b.Acquire(t.Context(), req); got <- outcome{g, err} }()
	select {
	case <-waits:
	case o := <-got:
		t.Fatalf("Acquire: want it to wait, got %v", o.err)
	case <-time.After(10 * time.Second):
		t.Fatal("Acquire: want OnWait called")
	}
	return got
}

// TestGuard: a stale holder cannot commit, and no other client gets the lock while a
// guarded transaction runs.
func TestGuard(t *testing.T) {
	s, admin := server(t)
	a := open(t, pgtest.With(s, nil))
	req := request("k", 500*time.Millisecond)
	g, err := a.TryAcquire(t.Context(), req)
	must(t, err)
	tx, err := admin.Begin(t.Context())
	must(t, err)
	must(t, a.Guard(t.Context(), tx, "k", req.Owner, g.Token()))
	next := make(chan time.Time, 1)
	go func() {
		other := request("k", 10*time.Second)
		if _, err := a.Acquire(t.Context(), other); err != nil {
			t.Error(err)
		}
		next <- time.Now()
	}()
	select {
	case <-next:
		t.Error("the lock was granted while a guarded transaction ran")
	case <-time.After(time.Second): // the lease has ended
	}
	committed := time.Now()
	must(t, tx.Commit(t.Context()))
	select {
	case at := <-next:
		if at.Before(committed) {
			t.Error("granted before the commit")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("not granted after the guarded transaction")
	}
	tx, err = admin.Begin(t.Context())
	must(t, err)
	if err := a.Guard(t.Context(), tx, "k", req.Owner, g.Token()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Guard with a stale grant: want ErrLost, got %v", err)
	}
	must(t, tx.Rollback(t.Context()))
}

// TestKilledConnections kills all connections of the clients at each step.
func TestKilledConnections(t *testing.T) {
	s, admin := server(t)
	a, b := open(t, pgtest.With(s, nil)), open(t, pgtest.With(s, nil, "pool_size", "2"))
	kill := func() {
		t.Helper()
		sql(t, admin, "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = '' AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND query LIKE '%interlock%'")
	}
	retry := func(what string, f func() error) {
		t.Helper()
		var err error
		for range 12 { // one for each connection of the pools
			if err = f(); err == nil {
				return
			}
			if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrLocked) {
				break
			}
		}
		t.Fatalf("%s with killed connections: %v", what, err)
	}
	for round := range 3 {
		key := fmt.Sprint("k", round)
		kill()
		req := request(key, 20*time.Second)
		var g backend.Grant
		retry("TryAcquire", func() (err error) { g, err = a.TryAcquire(t.Context(), req); return err })
		got := waitFor(t, b, request(key, 20*time.Second))
		kill()
		retry("Renew", func() error { return g.Renew(t.Context(), 20*time.Second) })
		kill()
		retry("Release", func() error { return g.Release(t.Context()) })
		start := time.Now()
		select {
		case o := <-got:
			must(t, o.err)
			t.Logf("handed over %v after the release", time.Since(start))
			retry("Release", func() error { return o.g.Release(t.Context()) })
		case <-time.After(10 * time.Second):
			t.Fatal("the waiter was not granted after its connections were killed")
		}
	}
}
