package mysql_test

import (
	"context"
	"database/sql"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// name is an address whose new connections reach the server that it names at the moment. Those that are open stay.
type name struct {
	addr   string
	server atomic.Value // host:port
}

func newName(t *testing.T, server string) *name {
	t.Helper()
	return newNameAt(t, "tcp", "127.0.0.1:0", server)
}

// newNameAt is newName for an address or a socket.
func newNameAt(t *testing.T, network, addr, server string) *name {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	n := &name{addr: l.Addr().String()}
	n.server.Store(server)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go n.serve(client)
		}
	}()
	return n
}

func (n *name) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", n.server.Load().(string))
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	_, _ = io.Copy(client, server)
}

// copyLocks makes the tables of one server those of another one, as replication does. It leaves the procedures out: a
// client that misses them creates them.
func copyLocks(t *testing.T, from, to *sql.DB) {
	t.Helper()
	schema, err := mysqllock.Schema(mysqllock.DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	tables, _, _ := strings.Cut(schema, "SET @interlock_mode")
	migrate(t, to, strings.TrimSuffix(tables, ";\n"))
	for _, table := range []string{"interlock", "interlock_places"} {
		copyTable(t, from, to, table)
	}
}

func copyTable(t *testing.T, from, to *sql.DB, table string) {
	t.Helper()
	rows, err := from.Query("SELECT * FROM " + table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	marks := strings.TrimSuffix(strings.Repeat("?,", len(columns)), ",")
	for rows.Next() {
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Exec("INSERT INTO "+table+" VALUES ("+marks+")", values...); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestDemoted: after a failover the connections to the old primary stay open, and it refuses writes. The lease is kept,
// and locks are granted by the new primary, for a client with its own pool and for one with the application's.
func TestDemoted(t *testing.T) {
	each(t, func(t *testing.T, old *provision.Server) {
		next := provision.NewMySQL(t, old.Flavour, provision.Options{})
		oldAdmin, newAdmin := provision.MySQLPool(t, old, nil), provision.MySQLPool(t, next, nil)
		for _, admin := range []*sql.DB{oldAdmin, newAdmin} {
			exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON locks.* TO app@'%'")
		}
		n := newName(t, old.Addr())
		own := open(t, strings.Replace(as(old, "app", "s3cret", nil), old.Addr(), n.addr, 1))
		db := provision.MySQLPool(t, old, func(c *mysql.Config) {
			c.Addr, c.User, c.Passwd = n.addr, "app", "s3cret"
		})
		clients := map[string]*lock.Client{"URL": own, "New": over(t, db, mysqllock.WithPrefix("theirs"))}
		held := map[string]*lock.Lease{}
		waiters := map[string]<-chan *lock.Lease{}
		for kind, c := range clients {
			var err error
			if held[kind], err = c.Mutex("held").Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			waiters[kind] = waiting(t, c, "held", 1)
		}
		exec(t, oldAdmin, "SET GLOBAL read_only=1")
		copyLocks(t, oldAdmin, newAdmin)
		n.server.Store(next.Addr())
		for kind, c := range clients {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			l, err := c.Mutex("new").Lock(ctx)
			cancel()
			if err != nil {
				t.Fatalf("%s: Lock after the failover: want a grant by the new primary, got %v", kind, err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("%s: Unlock: %v", kind, err)
			}
			if err := held[kind].Check(t.Context()); err != nil {
				t.Errorf("%s: the lease that was held: %v", kind, err)
			}
			if err := held[kind].Unlock(t.Context()); err != nil {
				t.Errorf("%s: its Unlock: %v", kind, err)
			}
			if err := granted(t, kind+": the waiter", waiters[kind]).Unlock(t.Context()); err != nil {
				t.Errorf("%s: the Unlock of the waiter: %v", kind, err)
			}
		}
	})
}
