package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// TestSettings: settings that would break the protocol are refused, all others are harmless.
func TestSettings(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} })
		if b, err := mysqllock.New(db); err == nil || !strings.Contains(err.Error(), "autocommit") {
			t.Errorf("autocommit=0: want an error that names it, got %v, %v", b, err)
		}
		// A server with unusual defaults, which ends idle connections after a second.
		exec(t, admin, "SET GLOBAL autocommit=0", "SET GLOBAL sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "SET GLOBAL time_zone='-05:00'", "SET GLOBAL wait_timeout=1",
			"SET GLOBAL innodb_flush_log_at_trx_commit=2")
		c, err := lock.Open(t.Context(), url, lock.WithTTL(5*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		l, err := c.Mutex("odd").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first, _ := l.Token()
		for range 2 { // renewals, before each of which the connections have ended
			<-time.After(1500 * time.Millisecond)
			eventually(t, "no connection but those for events", func() bool { return len(threads(t, admin, "app")) <= 2 })
			if err := l.Check(t.Context()); err != nil {
				t.Errorf("a lease while connections end: %v", err)
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		exec(t, admin, "DELETE FROM interlock", "COMMIT")
		if l, err = c.Mutex("odd").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if token, _ := l.Token(); token <= first {
			t.Errorf("token %d after the row was deleted, was %d", token, first)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		b, err := suite.Open(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Join(b.Capabilities().Caveats, "\n"); !strings.Contains(says, "innodb_flush_log_at_trx_commit=2") {
			t.Errorf("caveats: want the server's flush setting named, got %s", says)
		}
		_ = b.Close(t.Context())
	})
}
