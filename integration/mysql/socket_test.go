package mysql_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// TestSocket opens a client over a Unix socket.
func TestSocket(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		dir, err := os.MkdirTemp("", "interlock-socket-") // the path of a socket has 107 bytes at most
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "mysqld.sock")
		newNameAt(t, "unix", path, s.Addr())
		url := "mysql://root@" + path // a password would be sent as it is, which a server refuses over TCP
		c := open(t, suite.WithParams(url, map[string]string{"db": provision.MySQLDatabase}))
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "k", 1)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		refused(t, "no database", url, "URL parameter db", "database")
		refused(t, "no such socket", url+"x?db=locks", path+"x")
		refused(t, "a database in both", as(s, "app", "s3cret", map[string]string{"db": "locks"}), "URL parameter db")
		refused(t, "neither", "mysql://?db=locks", "one host", "Unix socket")
	})
}
