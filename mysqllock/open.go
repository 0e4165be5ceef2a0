package mysqllock

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	for _, scheme := range []string{"mysql", "mariadb"} {
		backend.Register(scheme, Open)
	}
}

// DefaultPool is the maximum of connections for statements of a backend opened by URL.
const DefaultPool = 10

// settings are the parameters of a URL.
type settings struct {
	options
	net, addr, database, user, password string
	dial                                time.Duration
	pool                                int
	tls                                 *tls.Config
}

// Open opens a backend from a URL. The package documentation has its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(s.config())
	if err != nil {
		return nil, fmt.Errorf("%s at %s: %w", u.Scheme, s.addr, err)
	}
	db := sql.OpenDB(connector)
	conns := s.pool
	if s.notify {
		conns = max(conns+listenerConns, minPool)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(time.Minute) // far below the wait_timeout of servers
	t, _ := parseTable(s.table)        // parse has checked it
	svc := &service{
		db: db, ownDB: true, address: " at " + s.addr, opt: s.options, schema: newSchema(t), life: call.NewLife(),
		answering: newAnswering(pingNew(connector)),
	}
	b, err := svc.open(ctx, s.dial+s.timeout)
	if err != nil {
		_ = db.Close() // err is more important
		if !strings.Contains(err.Error(), s.addr) {
			err = fmt.Errorf("%w (at %s)", err, s.addr)
		}
		return nil, err
	}
	return b, nil
}

func parse(u *backend.URL) (settings, error) {
	p := u.Params
	s := settings{options: defaults()}
	s.table = p.String("table", DefaultTable)
	s.prefix = p.String("prefix", DefaultPrefix)
	s.create = p.Bool("create", true)
	s.pool = p.Int("pool_size", DefaultPool, 1, 100000)
	s.dial = p.Duration("dial_timeout", 3*time.Second)
	s.timeout = p.Duration("timeout", s.timeout)
	s.retention = p.Retention()
	s.notify = p.Enum("notify", "auto", "auto", "off") == "auto"
	database := p.String("db", "")
	secure := p.Enum("tls", "false", "false", "true", "skip-verify")
	files := tlsurl.Read(p)
	_, tableErr := parseTable(s.table)
	if err := cmp.Or(p.Err(), checkPrefix(s.prefix), tableErr, WithTimeout(s.timeout)(&s.options)); err != nil {
		return s, err
	}
	if err := s.locate(u, database); err != nil {
		return s, err
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
	}
	var err error
	s.tls, err = files.Config(secure != "false", "tls=true")
	if s.tls != nil {
		s.tls.InsecureSkipVerify = secure == "skip-verify" // explicitly requested
	}
	return s, err
}

// locate sets the address, which is a socket if the URL has no host, and the database.
func (s *settings) locate(u *backend.URL, database string) error {
	form := u.Scheme + "://[user[:password]@]host[:port]/database with one host, or " +
		u.Scheme + "://[user[:password]@]/path?db=database with the path of a Unix socket"
	named := "URL path"
	switch {
	case len(u.Hosts) == 0 && len(u.Path) > 1 && u.Path[0] == '/':
		s.net, s.addr, s.database, named = "unix", u.Path, database, "URL parameter db"
	case len(u.Hosts) != 1:
		return backend.Invalid("URL hosts", strings.Join(u.Hosts, ","), form)
	case database != "":
		return backend.Invalid("URL parameter db", database, "a database in the path, if the URL has a host")
	default:
		s.net, s.addr, s.database = "tcp", backend.HostPort(u.Hosts[0], "3306"), strings.TrimPrefix(u.Path, "/")
	}
	if s.database == "" && !strings.Contains(s.table, ".") {
		return backend.Invalid(named, "/"+s.database, "the name of a database, or table=database.table")
	}
	return nil
}

// config returns the configuration of connections. Their sessions do not depend on the
// defaults of the server.
func (s *settings) config() *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.Passwd = s.net, s.addr, s.database, s.user, s.password
	c.Timeout, c.TLS = s.dial, s.tls
	c.Logger = &mysql.NopLogger{}
	c.Params = map[string]string{
		"autocommit": "1",
		"sql_mode":   mode,
		// the statements have conditions and limits of their own; the comment is for one of the two servers
		"sql_select_limit": noLimit, "sql_big_selects": "1",
		"sql_safe_updates": "0 /*!50720 , max_execution_time=0, transaction_read_only=0 */ " +
			"/*M! , max_statement_time=0, tx_read_only=0 */",
		// only a transaction with Guard keeps a row locked for longer than a moment
		"innodb_lock_wait_timeout": fmt.Sprint(max(1, int(s.timeout/time.Second)-1)),
	}
	// while no statement is sent, only the kernel finds a dead connection
	d := &net.Dialer{Timeout: s.dial, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	c.DialFunc = d.DialContext
	return c
}
