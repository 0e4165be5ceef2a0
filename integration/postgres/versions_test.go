package postgres_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/pglock"
)

var versionSuffix = regexp.MustCompile(`_([0-9a-f]{12})"`)

// schemaOf returns the statements for a table, and the version of its functions.
func schemaOf(t *testing.T, table string) (schema, version string) {
	t.Helper()
	schema, err := pglock.Schema(table)
	must(t, err)
	return schema, versionSuffix.FindStringSubmatch(schema)[1]
}

const otherVersion = "0123456789ab"

// createOther creates the functions of another version, which differ in a comment, beside those of this one.
func createOther(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	schema, version := schemaOf(t, pglock.DefaultTable)
	schema = strings.ReplaceAll(schema, "\nBEGIN\n", "\nBEGIN -- of another version\n")
	sql(t, admin, strings.ReplaceAll(schema, version, otherVersion))
	sql(t, admin, "INSERT INTO interlock (name, since) VALUES ("+nameOf(otherVersion)+", 0)")
}

// nameOf returns the name of the row that says when a version was used.
func nameOf(version string) string { return "decode('00', 'hex') || '" + version + "'::bytea" }

// functions returns how many functions and types of a version there are.
func functions(t *testing.T, admin *pgxpool.Pool, version string) (n int) {
	t.Helper()
	must(t, admin.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'interlock%' || $1)
		+ (SELECT count(*) FROM pg_type WHERE typname LIKE 'interlock%' || $1)`, version).Scan(&n))
	return n
}

// TestVersionsBeside: the functions of two versions on one table grant locks to each other's waiters.
func TestVersionsBeside(t *testing.T) {
	st := newStage(t)
	_, version := schemaOf(t, pglock.DefaultTable)
	createOther(t, st.admin)
	if n := functions(t, st.admin, otherVersion); n != functions(t, st.admin, version) {
		t.Fatalf("%d functions of the other version", n)
	}
	for i, share := range []backend.Share{{}, backend.Reader, {Weight: 1, Capacity: 1}} {
		s := st.beside(t, fmt.Sprint("k", i))
		s.version = version
		held := s.try()
		s.version = otherVersion
		waiter := s.enqueue(s.admin, noProcess, share)
		must(t, held.Release(t.Context()))
		if holders, _ := s.info(); !slices.Equal(holders, []string{waiter.Owner}) {
			t.Fatalf("%s: want the waiter of the other version granted, got %q", share, holders)
		}
		got := waitFor(t, s.b, s.share(backend.Share{}))
		if status := s.call(s.admin, "end", "end", s.name(), waiter.Owner, noProcess, false, "", true); status != "ended" {
			t.Errorf("%s: the other version ends its grant: %s", share, status)
		}
		must(t, s.next(got).Release(t.Context()))
	}
}

// TestFunctionsDropped: a client whose functions were dropped creates them again, and keeps its locks.
func TestFunctionsDropped(t *testing.T) {
	s := newStage(t)
	_, version := schemaOf(t, pglock.DefaultTable)
	strict := open(t, pgtest.With(s.s, nil, "create", "false"))
	g := s.try()
	all := functions(t, s.admin, version)
	for what, do := range map[string]func() error{
		"Renew": func() error { return g.Renew(t.Context(), time.Hour) },
		"RenewBatch": func() error {
			twice := slices.Repeat([]backend.Renewal{{Grant: g, TTL: time.Hour}}, 2)
			return errors.Join(s.b.RenewBatch(t.Context(), twice)...)
		},
		"TryAcquire": func() error {
			next, err := s.b.TryAcquire(t.Context(), request("another", time.Hour))
			if err == nil {
				err = next.Release(t.Context())
			}
			return err
		},
		"Inspect": func() error { _, err := s.b.Inspect(t.Context(), s.key); return err },
		"Sweep":   func() error { _, err := s.b.Sweep(t.Context(), time.Hour); return err },
	} {
		dropFunctions(t, s.admin, "public", version)
		if n := functions(t, s.admin, version); n != 0 {
			t.Fatalf("%d functions are left", n)
		}
		_, err := strict.TryAcquire(t.Context(), request("strict", time.Hour))
		if err == nil || backend.OutcomeUnknown(err) || !strings.Contains(err.Error(), version) || !strings.Contains(err.Error(), "pglock.Schema") {
			t.Errorf("create=false: want an error of known outcome that names the functions and what to apply, got %v", err)
		}
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := functions(t, s.admin, version); n != all {
			t.Errorf("%s: want %d functions created again, got %d", what, all, n)
		}
	}
	must(t, g.Release(t.Context()))
}

// dropFunctions drops a version as another client does.
func dropFunctions(t *testing.T, admin *pgxpool.Pool, schema, version string) {
	t.Helper()
	sql(t, admin, fmt.Sprintf(`DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE 'interlock%%%[1]s' LOOP
			EXECUTE 'DROP FUNCTION ' || f;
		END LOOP;
		DROP TYPE %[2]s.interlock_answer_%[1]s; END $$`, version, schema))
}

// TestUnusedVersionsGo: clients drop the functions of a version that was not used for a day, and nothing else.
func TestUnusedVersionsGo(t *testing.T) {
	s := newStage(t)
	_, version := schemaOf(t, pglock.DefaultTable)
	all := functions(t, s.admin, version)
	createOther(t, s.admin)
	const recent = "aaaaaaaaaaaa"
	schema, _ := schemaOf(t, pglock.DefaultTable)
	sql(t, s.admin, strings.ReplaceAll(schema, version, recent))
	sql(t, s.admin, "CREATE SCHEMA elsewhere")
	sql(t, s.admin, "CREATE FUNCTION elsewhere.interlock_rule_"+otherVersion+"() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	sql(t, s.admin, "INSERT INTO interlock (name, since) VALUES ("+nameOf(recent)+", "+past+" - 23 * 3600000000)")
	sql(t, s.admin, "UPDATE interlock SET since = 0 WHERE name = "+nameOf(version)) // its own one
	open(t, pgtest.With(s.s, nil, "table", "another"))                              // whose functions have another version
	before := functions(t, s.admin, "")
	open(t, pgtest.With(s.s, nil, "retention", "1m")) // sweeps within half a minute
	must(t, within(time.Minute, func() error {
		var rows int
		err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM interlock WHERE name = "+nameOf(otherVersion)).Scan(&rows)
		if err == nil && rows > 0 {
			err = errors.New("the unused version is still noted")
		}
		return err
	}))
	if n := functions(t, s.admin, otherVersion); n != 1 {
		t.Errorf("want only the function of another schema left of the unused version, got %d", n)
	}
	if after := functions(t, s.admin, ""); before-after != all {
		t.Errorf("want %d functions and types dropped, got %d of %d", all, before-after, before)
	}
	must(t, s.try().Release(t.Context()))
}

// TestMissingRights: an error names the right that is missing, and the GRANT.
func TestMissingRights(t *testing.T) {
	s, admin := server(t)
	schema, version := schemaOf(t, "locks.interlock")
	sql(t, admin, "CREATE SCHEMA locks; "+schema)
	sql(t, admin, fmt.Sprintf(`DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid::regprocedure FROM pg_proc WHERE proname LIKE 'interlock%%%s' LOOP
			EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || f || ' FROM PUBLIC';
		END LOOP; END $$`, version))
	const grants = "GRANT USAGE ON SCHEMA locks TO %[1]s; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA locks TO %[1]s; " +
		"GRANT SELECT, INSERT, UPDATE, DELETE ON locks.interlock, locks.interlock_places TO %[1]s"
	for i, c := range []struct{ revoke, says string }{
		{"", ""},
		{"USAGE ON SCHEMA locks", "USAGE on the schema"},
		{"SELECT ON locks.interlock", "GRANT SELECT"}, {"INSERT ON locks.interlock", "GRANT SELECT, INSERT"},
		{"UPDATE ON locks.interlock", "UPDATE"}, {"DELETE ON locks.interlock", "DELETE"},
		{"SELECT ON locks.interlock_places", "GRANT SELECT"}, {"INSERT ON locks.interlock_places", "GRANT SELECT, INSERT"},
		{"UPDATE ON locks.interlock_places", "UPDATE"}, {"DELETE ON locks.interlock_places", "DELETE"},
		{"EXECUTE ON ALL FUNCTIONS IN SCHEMA locks", "EXECUTE on the functions"},
	} {
		role := fmt.Sprint("role", i)
		sql(t, admin, "CREATE ROLE "+role+" LOGIN; "+fmt.Sprintf(grants, role))
		if c.revoke != "" {
			sql(t, admin, "REVOKE "+c.revoke+" FROM "+role)
		}
		err := useAll(t, as(pgtest.With(s, nil, "table", "locks.interlock", "create", "false"), role), "k"+role)
		if c.revoke == "" {
			must(t, err)
			continue
		}
		text := fmt.Sprint(err)
		if !strings.Contains(text, c.says) || !strings.Contains(text, "GRANT") || strings.Contains(text, "topsecret") {
			t.Errorf("without %s: want an error that says %q and GRANT and no password, got %s", c.revoke, c.says, text)
		}
	}
	sql(t, admin, "CREATE ROLE creator LOGIN; "+fmt.Sprintf(grants, "creator"))
	dropFunctions(t, admin, "locks", version)
	err := useAll(t, as(pgtest.With(s, nil, "table", "locks.interlock"), "creator"), "creator")
	if err == nil || !strings.Contains(err.Error(), "CREATE on the schema") {
		t.Errorf("without CREATE ON SCHEMA: want an error that says CREATE on the schema, got %v", err)
	}
}

// useAll opens a client and calls each kind of operation, until one fails.
func useAll(t *testing.T, url, key string) error {
	t.Helper()
	opened, err := suite.Open(t.Context(), url)
	if err != nil {
		return err
	}
	defer opened.Close(t.Context())
	b := opened.(*pglock.Backend)
	g, err := b.TryAcquire(t.Context(), request(key, time.Hour))
	if err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return g.(backend.Downgrader).Downgrade(t.Context()) },
		func() error { return g.Renew(t.Context(), time.Hour) },
		func() error { return b.Abandon(t.Context(), request(key, time.Hour)) },
		func() error { return g.Release(t.Context()) },
		func() error { _, err := b.Sweep(t.Context(), time.Hour); return err },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
