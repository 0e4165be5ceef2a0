package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestService and TestDifferential show that the procedures keep the rule of queuetest.
func TestService(t *testing.T) {
	everyFlavour(t, func(t *testing.T, s *provision.Server) {
		queuetest.Test(t, ruleHarness(t, s))
		mysqltest.NoDeadlocks(t, provision.MySQLPool(t, s, nil))
	})
}

// LOCK_TEST_SEQUENCES is the number of sequences, about 45 operations each.
func TestDifferential(t *testing.T) {
	n := 200
	if s := os.Getenv("LOCK_TEST_SEQUENCES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("LOCK_TEST_SEQUENCES: %v", err)
		}
	}
	everyFlavour(t, func(t *testing.T, s *provision.Server) {
		queuetest.Differential(t, ruleHarness(t, s), n)
		mysqltest.NoDeadlocks(t, provision.MySQLPool(t, s, nil))
	})
}

// everyFlavour runs f in turn: the procedures are to be the same on all of them.
func everyFlavour(t *testing.T, f func(t *testing.T, s *provision.Server)) {
	for _, flavour := range provision.MySQLFlavours() {
		t.Run(flavour, func(t *testing.T) {
			f(t, provision.NewMySQL(t, flavour, provision.Options{Args: provision.MySQLUnsynced()}))
		})
	}
}

func ruleHarness(t *testing.T, s *provision.Server) queuetest.Harness {
	admin := provision.MySQLPool(t, s, nil)
	gates := map[queue.Service]*gate{}
	var mu sync.Mutex
	return queuetest.Harness{
		Open: func(t testing.TB, events queue.Events) queue.Service {
			g := &gate{}
			db := sql.OpenDB(gated{provision.MySQLConnector(t, s, nil), g})
			db.SetMaxOpenConns(10) // 36 processes, of a server with 400 connections
			db.SetMaxIdleConns(10)
			t.Cleanup(func() { _ = db.Close() })
			service, err := mysqllock.NewService(db, events)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			gates[service] = g
			return service
		},
		Disconnect: func(t testing.TB, service queue.Service) (connect func()) {
			mu.Lock()
			defer mu.Unlock()
			return gates[service].disconnect(t, admin)
		},
		Rounding: 0,
	}
}

// gate counts the calls of procedures of a pool. While it is shut its connections cannot own a named lock.
type gate struct {
	calls atomic.Int64
	mu    sync.Mutex
	shut  bool
	name  string // of the lock
}

func (g *gate) disconnect(t testing.TB, admin *sql.DB) (connect func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	var id sql.NullInt64
	owner := func() bool {
		if err := admin.QueryRow("SELECT IS_USED_LOCK(?)", g.name).Scan(&id); err != nil {
			t.Error(err)
		}
		return id.Valid
	}
	if owner() {
		if _, err := admin.Exec("KILL " + strconv.FormatInt(id.Int64, 10)); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "the server has noticed the end of the connection", func() bool { return !owner() })
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut = false
	}
}

var getLock = regexp.MustCompile(`GET_LOCK\('([^']*)'`)

func (g *gate) allows(query string) error {
	if strings.HasPrefix(query, "CALL") {
		g.calls.Add(1)
	}
	m := getLock.FindStringSubmatch(query)
	if m == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return errors.New("the gate is shut")
	}
	g.name = m[1]
	return nil
}

// gated are connections that pass through a gate.
type gated struct {
	driver.Connector
	gate *gate
}

func (g gated) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := g.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return gatedConn{c, g.gate}, nil
}

type gatedConn struct {
	driver.Conn
	gate *gate
}

func (c gatedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.gate.allows(query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c gatedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c gatedConn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}

func (c gatedConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }
