// Package pgtest is the harness of the conformance suite for PostgreSQL, and helpers of
// the tests against it.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/pglock"
)

// Some selects the cases that the kind of connection could change.
const Some = "^(exclusion|waiting/(08|09|10-|12-(fifo|try))|cancellation/1[56]|release|fencing/3[12]|ambiguity/34-[^l])"

// Admin returns a pool of the superuser, and creates what the counters need.
func Admin(t testing.TB, s *provision.Server) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(s.PostgresURL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	admin, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	for _, sql := range []string{
		"CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
		"CREATE TABLE IF NOT EXISTS guarded (name text PRIMARY KEY, token bigint NOT NULL)",
	} {
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return admin
}

// With returns the URL of s with the parameters base and more, which are pairs.
func With(s *provision.Server, base map[string]string, more ...string) string {
	p := map[string]string{"sslmode": "disable"}
	for k, v := range base {
		p[k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
	return suite.WithParams(s.URL(), p)
}

// Polling is the budget of clients that poll: it has no figures of waiters.
var Polling = conformance.Budget{IdleHolderCommands: 4}

// Harness returns the harness of a server that the suite may stop and restart. Clients
// connect to front, which may be the server itself.
func Harness(t *testing.T, s, front *provision.Server, admin *pgxpool.Pool, params map[string]string) conformance.Harness {
	base := With(front, params)
	wakes := &grantCounter{}
	h := conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, With(front, params, "prefix", prefix))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, front.Addr())
			// Short enough for requests without a reply, long enough to connect over a slow link.
			b, err := suite.Open(ctx, strings.Replace(With(front, params, "dial_timeout", "3s", "timeout", "3s"), front.Addr(), p.Addr(), 1))
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    func(ctx context.Context) (int64, error) { return Commands(ctx, admin) },
		Budget: conformance.Budget{
			WakesPerRelease: 1, IdleHolderCommands: 4,
			DeadProcess:        backend.MaxProvisionalTTL,
			HandOffCommands:    2,
			IdleWaiterCommands: 1.5, // of the first waiter; the others poll less often
		},
		Wakes: func(ctx context.Context) (int64, error) { return wakes.count(ctx, admin) },
		Leftovers: func(ctx context.Context, name string) (left []string, err error) {
			var found string
			err = admin.QueryRow(ctx, `WITH key AS (SELECT $1::bytea AS name, extract(epoch FROM now()) * 1000000 AS us)
				SELECT 'holder ' || owner FROM interlock JOIN key USING (name) WHERE owner IS NOT NULL AND expires > us
				UNION ALL SELECT kind::text || ' ' || owner FROM interlock_places JOIN key USING (name) WHERE kind = 'w' OR kind = 'h' AND expires > us
				LIMIT 1`, pglock.Key(pglock.DefaultPrefix, name)).Scan(&found)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil, nil
			}
			return []string{found}, err
		},
		DestroyState: func(ctx context.Context, name string) error {
			_, err := admin.Exec(ctx, `WITH places AS (DELETE FROM interlock_places WHERE name = $1)
				DELETE FROM interlock WHERE name = $1`, pglock.Key(pglock.DefaultPrefix, name))
			return err
		},
		KeyOf: func(name string) string { return string(pglock.Key(pglock.DefaultPrefix, name)) },
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return guardedWrite(ctx, admin, name, token)
		},
	}
	return h
}

// Commands counts the statements of the driver that were executed.
func Commands(ctx context.Context, admin *pgxpool.Pool) (n int64, err error) {
	err = admin.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
		WHERE query LIKE '%"interlock%'`).Scan(&n)
	return n, err
}

// grantCounter counts grants that were handed over to waiters, by triggers on the
// tables. It starts at its first use.
type grantCounter struct{ once sync.Once }

func (g *grantCounter) count(ctx context.Context, admin *pgxpool.Pool) (n int64, err error) {
	g.once.Do(func() {
		_, err = admin.Exec(ctx, `CREATE SEQUENCE wakes;
			CREATE FUNCTION count_wake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('wakes'); RETURN NULL; END $$;
			CREATE TRIGGER wakes AFTER UPDATE ON interlock FOR EACH ROW
				WHEN (new.owner IS DISTINCT FROM old.owner AND new.unclaimed) EXECUTE FUNCTION count_wake();
			CREATE TRIGGER wakes AFTER UPDATE ON interlock_places FOR EACH ROW
				WHEN (new.kind <> old.kind AND new.unclaimed) EXECUTE FUNCTION count_wake()`,
			pgx.QueryExecModeSimpleProtocol)
	})
	if err == nil {
		err = admin.QueryRow(ctx, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM wakes").Scan(&n)
	}
	return n, err
}

// guardedWrite refuses a token that is lower than the highest one so far.
func guardedWrite(ctx context.Context, admin *pgxpool.Pool, name string, token uint64) error {
	tag, err := admin.Exec(ctx, `INSERT INTO guarded AS g VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE g.token <= excluded.token`, name, int64(token))
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("stale fencing token %d", token)
	}
	return err
}
