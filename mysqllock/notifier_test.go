package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A full server starts the cool-down, which is longer each time that the server is still
// full afterwards, and ends the connections that wait.
func TestYieldConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNotifier(&Backend{table: table{name: "t"}}, "db", 1, 1)
		stopped := false
		n.waitBegins(&line{}, func() { stopped = true })
		for _, c := range []struct{ after, want time.Duration }{
			{0, time.Second},
			{time.Second / 2, time.Second}, // other connections were refused meanwhile
			{2 * time.Second, 2 * time.Second},
			{3 * time.Second, 4 * time.Second},
			{40 * time.Second, 8 * time.Second},
			{10 * time.Second, 16 * time.Second},
			{20 * time.Second, 32 * time.Second},
			{40 * time.Second, time.Minute},
			{70 * time.Second, time.Minute},
			{3 * time.Minute, time.Second},
		} {
			time.Sleep(c.after)
			stopped = false
			if got := n.yieldConns(t.Context()); got != nil {
				t.Error("want no lock connection, there is none")
			}
			if wait, conn := time.Until(n.noWaitBefore), time.Until(n.noConnBefore); wait != c.want || conn != c.want {
				t.Errorf("refused %v after the last time: want a cool-down of %v, got %v and %v", c.after, c.want, wait, conn)
			}
			if !stopped {
				t.Error("want the watcher stopped")
			}
		}
	})
}

// recorder is a server that records its statements and fails some.
type recorder struct {
	sent  chan string
	fails string // prefix of the statements that fail
}

func (s *recorder) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *recorder) Driver() driver.Driver                        { return nil }
func (s *recorder) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *recorder) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (s *recorder) Close() error                                 { return nil }

func (s *recorder) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	s.sent <- q
	if s.fails != "" && strings.HasPrefix(q, s.fails) {
		return nil, errors.New("no answer")
	}
	return driver.RowsAffected(0), nil
}

// withLockConn calls f with a notifier that has one lock connection, which is checked out,
// and returns the statements that the server executed.
func withLockConn(t *testing.T, fails string, f func(*notifier, *lockConn)) (statements []string) {
	server := &recorder{sent: make(chan string, 9), fails: fails}
	db := sql.OpenDB(server)
	defer db.Close()
	b := &Backend{db: db, opt: defaults(), table: table{name: "t"}, life: t.Context()}
	n := newNotifier(b, "db", 1, 1)
	b.notifier = n
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &lockConn{n: n, conn: conn, free: make(chan struct{}, 1)}
	n.conns = []*lockConn{c}
	f(n, c)
	b.wg.Wait()
	close(server.sent)
	for q := range server.sent {
		statements = append(statements, q)
	}
	return statements
}

// If an attempt leaves its row while a packet that may get its named lock is in flight, the
// named lock is released on the same connection afterwards: no other call releases it.
func TestNameGotTooLate(t *testing.T) {
	owner := ownerOf(1)
	for name, c := range map[string]struct {
		leaves, leftBefore, unnamed bool // leftBefore: before the request, which is then refused
		kept, released              bool
	}{
		"stays":                              {kept: true},
		"leaves while the request is sent":   {leaves: true, released: true},
		"left before, by another connection": {leftBefore: true, kept: true},
		"stays, without a named lock":        {unnamed: true},
		"leaves, without a named lock":       {leaves: true, unnamed: true, released: true},
	} {
		t.Run(name, func(t *testing.T) {
			statements := withLockConn(t, "", func(n *notifier, conn *lockConn) {
				if c.leftBefore {
					n.releaseName(owner)
				}
				restore := n.setOwner(owner, conn)
				if c.leaves {
					n.releaseName(owner)
				}
				if c.unnamed {
					restore()
				}
				conn.checkin(nil)
				if kept := n.owners[owner] != nil; kept != c.kept {
					t.Errorf("want the named lock recorded: %v, got %v", c.kept, kept)
				}
			})
			if released := slices.ContainsFunc(statements, func(q string) bool { return strings.HasPrefix(q, "DO RELEASE_LOCK(") && strings.Contains(q, owner) }); released != c.released || len(statements) > 1 {
				t.Errorf("want the named lock released: %v, got %q", c.released, statements)
			}
		})
	}
}

// A second request whose connection does not get the named lock leaves it with the first one.
func TestNameKeptByFirst(t *testing.T) {
	withLockConn(t, "", func(n *notifier, first *lockConn) {
		n.setOwner(ownerOf(1), first)
		n.setOwner(ownerOf(1), &lockConn{})()
		if n.owners[ownerOf(1)] != first {
			t.Error("want the first connection recorded")
		}
	})
}

// Named locks that were to be released on a connection that breaks are released by the end
// of its session, of whose end the server may not know.
func TestNameOfBrokenConn(t *testing.T) {
	owner := ownerOf(1)
	for name, c := range map[string]struct {
		fails string
		err   error
	}{
		"a statement before it": {err: errors.New("no answer")},
		"the release itself":    {fails: "DO RELEASE_LOCK("},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			statements := withLockConn(t, c.fails, func(n *notifier, conn *lockConn) {
				n.setOwner(owner, conn)
				n.releaseName(owner)
				conn.checkin(c.err)
				want = "KILL IS_USED_LOCK(" + n.name(owner) + ")"
			})
			if len(statements) == 0 || statements[len(statements)-1] != want {
				t.Errorf("want %s last, got %q", want, statements)
			}
		})
	}
}
