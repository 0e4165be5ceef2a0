package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// bound is far above the duration of any step, and far below the leases of these tests.
const bound = 20 * time.Second

// eventually waits until ok returns true, and fails the test after bound.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(bound)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, bound)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// unlockInTurn releases l, and then the lease of each waiter, which must be granted in this order.
func unlockInTurn(t *testing.T, l *lock.Lease, waiters []<-chan *lock.Lease) {
	t.Helper()
	for i, w := range waiters {
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = granted(t, fmt.Sprint("waiter ", i), w)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// thread is a connection as the server sees it.
type thread struct {
	id    int64
	state string
	query string
}

func threads(t *testing.T, admin *sql.DB, user string) []thread {
	t.Helper()
	rows, err := admin.Query("SELECT id, COALESCE(state,''), COALESCE(info,'') FROM information_schema.processlist WHERE user=?", user)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []thread
	for rows.Next() {
		var th thread
		if err := rows.Scan(&th.id, &th.state, &th.query); err != nil {
			t.Fatal(err)
		}
		all = append(all, th)
	}
	return all
}

// waiting calls Lock in the background and returns when it is in the queue.
func waiting(t *testing.T, c *lock.Client, name string, place int) <-chan *lock.Lease {
	t.Helper()
	return waitingFor(t, c, name, place, c.Mutex(name, lock.WithTTL(5*time.Minute)).Lock)
}

func waitingFor(t *testing.T, c *lock.Client, name string, place int, request func(context.Context) (*lock.Lease, error)) <-chan *lock.Lease {
	t.Helper()
	got := make(chan *lock.Lease, 1)
	go func() {
		l, err := request(t.Context())
		if err != nil && t.Context().Err() == nil {
			t.Errorf("a waiter: %v", err)
		}
		got <- l
	}()
	eventually(t, fmt.Sprintf("waiter %d in the queue", place), func() bool {
		info, err := c.Inspect(t.Context(), name)
		return err == nil && len(info.Waiters) >= place
	})
	return got
}

func granted(t *testing.T, what string, got <-chan *lock.Lease) *lock.Lease {
	t.Helper()
	select {
	case l := <-got:
		if l == nil {
			t.FailNow()
		}
		return l
	case <-time.After(bound):
		t.Fatalf("%s: no grant within %v", what, bound)
	}
	return nil
}

// withApp creates a user for the driver, so that its connections differ from those of the
// tests.
func withApp(t *testing.T, s *provision.Server) (admin *sql.DB, url string) {
	admin = provision.MySQLPool(t, s, nil)
	exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT CREATE, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, SELECT, INSERT, UPDATE, DELETE ON locks.* TO app@'%'")
	return admin, as(s, "app", "s3cret", nil)
}

// migrate executes what Schema returns, as the command line client does.
func migrate(t *testing.T, db *sql.DB, script string) {
	t.Helper()
	conn, err := db.Conn(t.Context()) // the script changes and restores a setting of the session
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	end := ";\n"
	for rest := script + end; rest != ""; {
		if after, ok := strings.CutPrefix(rest, "DELIMITER "); ok {
			end, rest, _ = strings.Cut(after, "\n")
			end += "\n"
			continue
		}
		var q string
		q, rest, _ = strings.Cut(rest, end)
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%.100s: %v", q, err)
		}
	}
}

// request returns a raw request for a key.
func request(key string, ttl time.Duration) backend.Request {
	return backend.Request{Key: key, Owner: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), TTL: ttl}
}

func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := db.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

// as returns the URL of another user.
func as(s *provision.Server, user, password string, params map[string]string) string {
	u := url.URL{Scheme: "mysql", Host: s.Addr(), Path: "/" + provision.MySQLDatabase, User: url.UserPassword(user, password)}
	return suite.WithParams(u.String(), params)
}

// refused checks that opening fails with an error that has all of says and no password.
func refused(t *testing.T, what, url string, says ...string) {
	t.Helper()
	b, err := suite.Open(t.Context(), url)
	if err == nil {
		_ = b.Close(t.Context())
		t.Errorf("%s: want an error, got none", what)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: want an error with %q, got %v", what, s, err)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%s: the error shows the password: %v", what, err)
	}
}

// killAll ends all connections of a user and returns their number.
func killAll(t *testing.T, admin *sql.DB, user string) int {
	rows, err := admin.Query("SELECT id FROM information_schema.processlist WHERE user=?", user)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Error(err)
		}
		ids = append(ids, id)
	}
	n := 0
	for _, id := range ids {
		_, err := admin.Exec(fmt.Sprintf("KILL %d", id))
		var e *mysql.MySQLError
		if err == nil {
			n++
		} else if !errors.As(err, &e) || e.Number != 1094 { // it has ended already
			t.Error(err)
		}
	}
	return n
}

// each runs f against a new server of each flavour, beside other tests: most tests wait most
// of the time.
func each(t *testing.T, f func(t *testing.T, s *provision.Server)) {
	t.Parallel()
	inTurn(t, func(t *testing.T, s func() *provision.Server) {
		t.Parallel()
		f(t, s())
	})
}

// inTurn is each for tests that need the whole machine.
func inTurn(t *testing.T, f func(t *testing.T, s func() *provision.Server)) {
	for _, flavour := range provision.MySQLFlavours() {
		t.Run(flavour, func(t *testing.T) {
			if flavour == provision.MySQL9 {
				provision.LeaveOut(t, "mysql-9 outside the suite")
			}
			f(t, func() *provision.Server {
				return provision.NewMySQL(t, flavour, provision.Options{Args: provision.MySQLUnsynced()})
			})
		})
	}
}

// open opens a client by URL.
func open(t *testing.T, url string) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// over returns a client that uses a pool.
func over(t *testing.T, db *sql.DB, opts ...mysqllock.Option) *lock.Client {
	t.Helper()
	_, c := backendOver(t, db, opts...)
	return c
}

// backendOver returns a backend that uses a pool, and a client of it.
func backendOver(t *testing.T, db *sql.DB, opts ...mysqllock.Option) (*mysqllock.Backend, *lock.Client) {
	t.Helper()
	b, err := mysqllock.New(db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := lock.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return b, c
}
func updates(t *testing.T, db *sql.DB, q string, args ...any) bool {
	t.Helper()
	r, err := db.Exec(q, args...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}
func openRaw(t *testing.T, url string) backend.Backend {
	t.Helper()
	b, err := suite.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}
