// Package mysqltest is the harness of the conformance suite for MySQL and MariaDB, and
// what the tests against them share.
package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// Harness is that of one server, which the suite may stop and restart.
func Harness(t *testing.T, s *provision.Server, admin *sql.DB) conformance.Harness {
	base := s.URL()
	wakes := &wakeCounter{}
	key := func(name string) string { return mysqllock.Key(mysqllock.DefaultPrefix, name) }
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(base, map[string]string{"prefix": prefix}))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			// A statement into a black hole frees its connection soon; what is answered over a slow link has
			// time for all that a connection takes.
			b, err := suite.Open(ctx, suite.WithParams(strings.Replace(base, s.Addr(), p.Addr(), 1), map[string]string{"dial_timeout": "3s", "timeout": "3s"}))
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     append([]string{"(*mysqlConn).startWatcher"}, suite.OwnGoroutines...), // of each connection in the pool, of which there may be as many as it says; TestClose looks for those that are left
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    func(ctx context.Context) (int64, error) { return Statements(ctx, admin) },
		Wakes:             func(ctx context.Context) (int64, error) { return wakes.count(ctx, admin) },
		Leftovers:         func(ctx context.Context, name string) ([]string, error) { return leftovers(ctx, admin, key(name)) },
		DestroyState: func(ctx context.Context, name string) error {
			_, err := admin.ExecContext(ctx, "DELETE FROM interlock WHERE name=?", []byte(key(name)))
			return err
		},
		KeepsFence: true, // tokens are the server's time
		KeyOf:      key,
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return guardedWrite(ctx, admin, name, token)
		},
	}
}

// Statements counts what clients had executed.
func Statements(ctx context.Context, admin *sql.DB) (int64, error) {
	var name string
	var n int64
	err := admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

// wakeCounter counts the grants that were handed to waiters, by a trigger on the lock
// table from its first use on. That nobody else is woken is seen in the statements of
// a cycle.
type wakeCounter struct{ once sync.Once }

func (w *wakeCounter) count(ctx context.Context, admin *sql.DB) (n int64, err error) {
	w.once.Do(func() {
		for _, q := range []string{
			"CREATE TABLE wakes (n BIGINT NOT NULL)", "INSERT INTO wakes VALUES (0)",
			"CREATE TRIGGER count_wakes AFTER UPDATE ON interlock FOR EACH ROW UPDATE wakes SET n=n+1 WHERE NEW.owner<>OLD.owner AND NEW.owner=SUBSTRING(OLD.queue,2,32)",
		} {
			if err == nil {
				_, err = admin.ExecContext(ctx, q)
			}
		}
	})
	if err == nil {
		err = admin.QueryRowContext(ctx, "SELECT n FROM wakes").Scan(&n)
	}
	return n, err
}

// leftovers are a live holder and a queue. The row stays, since the token lives in
// it, and so do for a while the marks that refuse late requests.
func leftovers(ctx context.Context, admin *sql.DB, key string) ([]string, error) {
	var owner, queue string
	err := admin.QueryRowContext(ctx, "SELECT owner, queue FROM interlock WHERE name=?", []byte(key)).Scan(&owner, &queue)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	var left []string
	for what, v := range map[string]string{"owner": owner, "queue": queue} {
		if v != "" {
			left = append(left, what+" "+v)
		}
	}
	return left, err
}

// guardedWrite writes only with a token that is not lower than the highest seen.
func guardedWrite(ctx context.Context, admin *sql.DB, name string, token uint64) error {
	_, err := admin.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS guarded (name VARBINARY(1024) PRIMARY KEY, fence BIGINT UNSIGNED NOT NULL)")
	if err == nil {
		_, err = admin.ExecContext(ctx, "INSERT IGNORE INTO guarded VALUES (?,0)", []byte(name))
	}
	if err != nil {
		return err
	}
	tx, err := admin.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var fence uint64
	if err := tx.QueryRowContext(ctx, "SELECT fence FROM guarded WHERE name=? FOR UPDATE", []byte(name)).Scan(&fence); err != nil {
		return err
	}
	if token < fence {
		return errors.New("stale fencing token")
	}
	if _, err := tx.ExecContext(ctx, "UPDATE guarded SET fence=? WHERE name=?", strconv.FormatUint(token, 10), []byte(name)); err != nil {
		return err
	}
	return tx.Commit()
}

var lastDeadlock = regexp.MustCompile(`(?s)LATEST DETECTED DEADLOCK\n-+\n(.*?)\n-{8,}`)

// NoDeadlocks asks the server whether it ever had to end one.
func NoDeadlocks(t testing.TB, admin *sql.DB) {
	t.Helper()
	var kind, name, status string
	if err := admin.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status); err != nil {
		t.Error(fmt.Errorf("SHOW ENGINE INNODB STATUS: %w", err))
		return
	}
	if m := lastDeadlock.FindStringSubmatch(status); m != nil {
		t.Errorf("the server found a deadlock:\n%s", m[1])
	}
}
