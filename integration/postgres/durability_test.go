package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// TestSurvivesPowerCut kills the server after each reply that grants a lock. The default
// of the server is asynchronous commit: a grant would not be on disk yet.
func TestSurvivesPowerCut(t *testing.T) {
	t.Parallel()
	s := provision.NewPostgres(t, provision.Postgres15, "synchronous_commit=off", "wal_writer_delay=10s")
	admin := pgtest.Admin(t, s)
	a, b := open(t, pgtest.With(s, nil)), open(t, pgtest.With(s, nil))
	cut := func() {
		t.Helper()
		must(t, s.Kill())
		must(t, s.Restart(t.Context()))
	}
	holder := func(want string, least time.Duration) {
		t.Helper()
		var info backend.Info
		var err error
		for range 10 { // the pool's connections are dead
			if info, err = a.Inspect(t.Context(), "k"); err == nil {
				break
			}
		}
		must(t, err)
		if h := info.Holder; h == nil || h.Owner != want || h.Left < least {
			t.Errorf("after the restart: want %s to hold for %v or more, got %+v", want, least, h)
		}
	}
	first := request("k", 10*time.Minute)
	g, err := a.TryAcquire(t.Context(), first)
	must(t, err)
	cut()
	holder(first.Owner, 5*time.Minute)
	for range 10 {
		if err = g.Renew(t.Context(), 10*time.Hour); err == nil {
			break
		}
	}
	must(t, err)
	cut()
	holder(first.Owner, 5*time.Hour)

	for what, end := range map[string]func() error{
		"Release": func() error { return g.Release(t.Context()) },
		"Break":   func() error { _, err := a.Break(t.Context(), "k", ""); return err },
	} {
		second := request("k", 10*time.Minute)
		got := waitFor(t, b, second)
		must(t, end())
		o := <-got
		if o.err != nil {
			t.Fatalf("%s: %v", what, o.err)
		}
		cut()
		var owner string // its provisional TTL of 3 s may have passed
		must(t, eventually(func() error {
			return admin.QueryRow(t.Context(), "SELECT owner FROM interlock WHERE name = 'lock:k'").Scan(&owner)
		}))
		if owner != second.Owner {
			t.Errorf("%s and a restart: want it handed over to %s, got %s", what, second.Owner, owner)
		}
		_ = o.g.Release(t.Context())
		must(t, eventually(func() error { g, err = a.TryAcquire(t.Context(), request("k", time.Minute)); return err }))
	}
}

// refusesToGrant checks that a server that cannot write returns errors of known outcome,
// and that g, the grant of key "held", is not lost.
func refusesToGrant(t *testing.T, b backend.Backend, g backend.Grant, says string) {
	t.Helper()
	for _, key := range []string{"free", "held"} {
		got, err := b.TryAcquire(t.Context(), request(key, time.Minute))
		if got != nil || err == nil || errors.Is(err, backend.ErrUncertain) || backend.OutcomeUnknown(err) || errors.Is(err, backend.ErrLocked) || !strings.Contains(err.Error(), says) {
			t.Errorf("TryAcquire of %s: want an error of known outcome that says %q, got %v, %v", key, says, got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		got, err = b.(backend.Waiter).Acquire(ctx, request(key, time.Minute))
		cancel()
		if got != nil || err == nil {
			t.Errorf("Acquire of %s: want an error, got %v, %v", key, got, err)
		}
	}
	for what, err := range map[string]error{"Renew": g.Renew(t.Context(), time.Minute), "Release": g.Release(t.Context())} {
		if err == nil || errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: want an error that is not ErrLost, got %v", what, err)
		}
	}
}

func worksAgain(t *testing.T, b backend.Backend, g backend.Grant) {
	t.Helper()
	must(t, g.Renew(t.Context(), time.Minute))
	next, err := b.TryAcquire(t.Context(), request("free", time.Minute))
	must(t, err)
	must(t, next.Release(t.Context()))
	must(t, g.Release(t.Context()))
}

func TestReadOnly(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil, "pool_size", "1"))
	g, err := b.TryAcquire(t.Context(), request("held", time.Hour))
	must(t, err)
	probes := 0
	readOnly := func(on string) {
		_, err := admin.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = "+on)
		must(t, err)
		_, err = admin.Exec(t.Context(), "SELECT pg_reload_conf()")
		must(t, err)
		must(t, eventually(func() error { // a session applies it between statements, some time after the signal
			probes++
			probe, err := b.TryAcquire(t.Context(), request(fmt.Sprint("probe ", probes), time.Minute))
			if err == nil {
				err = probe.Release(t.Context())
			}
			if refused := err != nil; refused != (on == "on") {
				return fmt.Errorf("read-only is not %s yet: %v", on, err)
			}
			return nil
		}))
	}
	readOnly("on")
	refusesToGrant(t, b, g, "connect to the primary")
	_, err = admin.Exec(t.Context(), "SET default_transaction_read_only = off")
	must(t, err)
	_, err = admin.Exec(t.Context(), "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
	must(t, err)
	readOnly("off")
	worksAgain(t, b, g)
}

// TestDemotedServer: all connections lead to a server that has become read-only, and new ones to the primary, as after a
// failover of a name. No request fails, and the next notification arrives.
func TestDemotedServer(t *testing.T) {
	s, admin := server(t)
	sql(t, admin, "CREATE ROLE app LOGIN IN ROLE pg_write_all_data, pg_read_all_data")
	st := &stage{T: t, s: s, admin: admin, b: open(t, pgtest.With(s, nil)), key: "demoted"}
	b := open(t, as(pgtest.With(s, nil), "app"))
	held := batchOf(t, b, "held", 8, time.Hour) // through all connections
	g := st.try()
	got := waitFor(t, b, request(st.key, time.Hour))
	listening := func() (pid int) {
		t.Helper()
		must(t, admin.QueryRow(t.Context(), "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE usename = 'app' AND query LIKE 'LISTEN%'").Scan(&pid))
		return pid
	}
	old := listening()
	// The setting of the role is for new sessions, and that of the server for those that there are.
	sql(t, admin, "ALTER ROLE app SET default_transaction_read_only = off")
	_, err := admin.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = on")
	must(t, err)
	sql(t, admin, "ALTER ROLE postgres SET default_transaction_read_only = off")
	_, err = admin.Exec(t.Context(), "SELECT pg_reload_conf()")
	must(t, err)
	must(t, eventually(func() error {
		var readOnly int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_settings WHERE name = 'default_transaction_read_only' AND setting = 'on'").Scan(&readOnly)
		if err == nil && readOnly == 0 {
			err = errors.New("the server is not read-only yet")
		}
		return err
	}))
	for i, r := range held {
		if err := r.Grant.Renew(t.Context(), time.Hour); err != nil {
			t.Errorf("renewal %d: %v", i, err)
		}
	}
	next, err := b.TryAcquire(t.Context(), request("next", time.Hour))
	must(t, err)
	must(t, next.Release(t.Context()))
	must(t, eventually(func() error {
		if pid := listening(); pid == old || pid == 0 {
			return fmt.Errorf("listening in session %d, as before", pid)
		}
		return nil
	}))
	must(t, g.Release(t.Context()))
	st.next(got)
}

// TestStandby: a server in recovery grants nothing. After its promotion it has the locks
// as before.
func TestStandby(t *testing.T) {
	s, admin := localServer(t)
	b := open(t, pgtest.With(s, nil, "pool_size", "1"))
	g, err := b.TryAcquire(t.Context(), request("held", time.Hour))
	must(t, err)
	must(t, provision.RestartAsStandby(t, s))
	_ = b.Ping(t.Context()) // fails on the old connection
	refusesToGrant(t, b, g, "connect to the primary")
	must(t, eventually(func() error {
		_, err := admin.Exec(t.Context(), "SELECT pg_promote(true, 30)")
		return err
	}))
	worksAgain(t, b, g)
}

// TestNoSpace: the server cannot extend the table.
func TestNoSpace(t *testing.T) {
	s, admin := localServer(t)
	b := open(t, pgtest.With(s, nil, "pool_size", "1", "application_name", "full"))
	var bytes, pid int
	must(t, b.Ping(t.Context()))
	must(t, admin.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE application_name = 'full'").Scan(&pid))
	// larger than a segment of the log, to which the server must still be able to write
	sql(t, admin, "INSERT INTO interlock (name, token) SELECT ('filler ' || i)::bytea, 1 FROM generate_series(1, 200000) i")
	sql(t, admin, "CHECKPOINT") // pages that there are need no write
	must(t, admin.QueryRow(t.Context(), "SELECT pg_relation_size('interlock')").Scan(&bytes))
	if bytes < 17<<20 {
		t.Fatalf("the table has %d bytes", bytes)
	}
	args := []string{"prlimit", "--pid", fmt.Sprint(pid), fmt.Sprintf("--fsize=%d", bytes)}
	if os.Getuid() == 0 { // root may lack the capability; the user of the process has it
		args = append([]string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"}, args...)
	}
	limit := exec.CommandContext(t.Context(), args[0], args[1:]...)
	if out, err := limit.CombinedOutput(); err != nil {
		t.Skipf("cannot limit the files of %s: %v %s", s.Source, err, out)
	}
	for i := range 1000 { // the last page may have room
		key := fmt.Sprint("k", i)
		g, err := b.TryAcquire(t.Context(), request(key, time.Minute))
		if err == nil {
			must(t, g.Release(t.Context()))
			continue
		}
		if errors.Is(err, backend.ErrUncertain) || !strings.Contains(err.Error(), "extend file") {
			t.Errorf("want an error of known outcome that says that a file cannot be extended, got %v", err)
		}
		info, err := b.Inspect(t.Context(), key)
		if err != nil || info.Holder != nil {
			t.Errorf("after the error: want the lock free, got %+v, %v", info.Holder, err)
		}
		return
	}
	t.Error("want an error, got 1000 grants")
}

// eventually repeats try for up to 20 s.
func eventually(try func() error) error { return within(20*time.Second, try) }

func within(limit time.Duration, try func() error) error {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err := try(); err == nil || time.Since(begun) > limit {
			return err
		}
	}
}
