// Package mysqltest has the harness of the conformance suite for MySQL and MariaDB, and
// helpers that several test packages share.
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

// Harness returns the harness of one server, which the suite may stop and restart.
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
			// A statement that gets no answer frees its connection soon, and opening a connection over a
			// slow link is possible.
			b, err := suite.Open(ctx, suite.WithParams(strings.Replace(base, s.Addr(), p.Addr(), 1), map[string]string{"dial_timeout": "3s", "timeout": "3s"}))
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     append([]string{"(*mysqlConn).startWatcher"}, suite.OwnGoroutines...), // one for each connection of the pool; TestClose checks that none remains
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    func(ctx context.Context) (int64, error) { return Statements(ctx, admin) },
		Budget: conformance.Budget{
			WakesPerRelease:    1,
			HandOffCommands:    17, // two to ask, six to enter the queue, seven to release, two to wake
			DeadProcess:        backend.MaxProvisionalTTL,
			IdleHolderCommands: 4,
			IdleWaiterCommands: 3.5, // two when the lease of the predecessor would end
		},
		Wakes:     func(ctx context.Context) (int64, error) { return wakes.count(ctx, admin) },
		Leftovers: func(ctx context.Context, name string) ([]string, error) { return leftovers(ctx, admin, key(name)) },
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

// Statements returns the number of statements that the server has executed for clients.
func Statements(ctx context.Context, admin *sql.DB) (int64, error) {
	var name string
	var n int64
	err := admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

// wakeCounter counts the events about grants, by a trigger on their table from its first use on. The statements of a cycle
// show that no other process is woken.
type wakeCounter struct{ once sync.Once }

func (w *wakeCounter) count(ctx context.Context, admin *sql.DB) (n int64, err error) {
	w.once.Do(func() {
		for _, q := range []string{
			"CREATE TABLE wakes (n BIGINT NOT NULL)", "INSERT INTO wakes VALUES (0)",
			"CREATE TRIGGER count_wakes AFTER INSERT ON interlock_events FOR EACH ROW UPDATE wakes SET n=n+1 WHERE NEW.kind='granted'",
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

// leftovers returns the holder and the waiters of a key. The row of the lock stays, since the
// token is in it, and so do the tombstones for a while.
func leftovers(ctx context.Context, admin *sql.DB, key string) ([]string, error) {
	rows, err := admin.QueryContext(ctx, "SELECT 'holder', owner FROM interlock WHERE name=? AND owner IS NOT NULL "+
		"UNION ALL SELECT IF(ends>0,'share holder','waiter'), owner FROM interlock_places WHERE name=? AND place>0", []byte(key), []byte(key))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var left []string
	for rows.Next() {
		var what, owner string
		if err := rows.Scan(&what, &owner); err != nil {
			return nil, err
		}
		left = append(left, what+" "+owner)
	}
	return left, rows.Err()
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

// NoDeadlocks fails the test if the server has found a deadlock.
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
