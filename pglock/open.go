package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

func init() {
	backend.Register("postgres", Open)
	backend.Register("postgresql", Open)
}

// Open opens a backend from a URL; the package documentation describes its form. Open
// returns within dial_timeout plus timeout.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	cfg, o, err := parse(u)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", flatError{err})
	}
	b, err := open(ctx, cfg.ConnConfig.ConnectTimeout+o.timeout, pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	b.svc.ownsPool = true
	return b, nil
}

// libpqParams are passed to pgx as they are.
var libpqParams = []string{"sslrootcert", "sslcert", "sslkey", "sslsni", "application_name"}

// parse returns the configuration of the pool and the options.
func parse(u *backend.URL) (*pgxpool.Config, options, error) {
	p, o := u.Params, defaults()
	o.table = p.String("table", o.table)
	o.prefix = p.String("prefix", o.prefix)
	o.create = p.Bool("create", true)
	listen := p.String("listen", "true")
	o.always = p.Bool("listen_always", false)
	o.timeout = p.Duration("timeout", o.timeout)
	o.retention = p.Retention()
	dialTimeout := p.Duration("dial_timeout", 3*time.Second)
	size := p.Int("pool_size", 0, 1, 10000)
	dir, database, port := p.String("host", ""), p.String("db", ""), p.Int("port", 0, 1, 65535)
	q := url.Values{}
	q.Set("sslmode", p.Enum("sslmode", "prefer", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"))
	for _, name := range libpqParams {
		if v := p.String(name, ""); v != "" {
			q.Set(name, v)
		}
	}
	attrs := "any"
	if len(u.Hosts) > 1 {
		attrs = "read-write" // one of them is the primary
	}
	q.Set("target_session_attrs", p.Enum("target_session_attrs", attrs, "any", "read-write", "primary"))
	_, tableErr := parseTable(o.table)
	if err := cmp.Or(p.Err(), tableErr, checkPrefix(o.prefix)); err != nil {
		return nil, o, err
	}
	at, err := locate(u, dir, database, port)
	if err != nil {
		return nil, o, err
	}
	cfg, err := connConfig(u, at, q, dialTimeout)
	if err == nil {
		err = o.setListen(listen, u, at.database, q, dialTimeout)
	}
	if err != nil {
		return nil, o, err
	}
	if size > 0 {
		cfg.MaxConns = int32(size)
	}
	cfg.BeforeConnect = o.suppressCancel
	cfg.ConnConfig.Tracer = make(opening, 1)
	// An idle connection without input has not been closed by the server and needs no
	// ping, which would be a round trip.
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return !hasNoInput(p.Conn.PgConn().Conn()) }
	return cfg, o, nil
}

// location is where a database is.
type location struct {
	hosts    []string // or else:
	dir      string   // of a Unix socket
	port     string   // in the name of the socket
	database string
}

const socketName = ".s.PGSQL." // and a port

// locate returns the location that a URL has. Without hosts it has a Unix socket: in the parameter host, as for libpq,
// or in the path, with the database in the parameter db.
func locate(u *backend.URL, dir, database string, port int) (location, error) {
	path := strings.TrimPrefix(u.Path, "/")
	user := u.Scheme + "://[user[:password]@]"
	form := user + "host[:port][,host[:port]...]/database, or with the directory of a Unix socket " +
		user + "/database?host=/directory or " + user + "/directory?db=database"
	l := location{hosts: u.Hosts, database: path}
	switch {
	case len(u.Hosts) > 0 && dir != "":
		return l, backend.Invalid("URL parameter host", dir, "no such parameter, if the URL has a host")
	case len(u.Hosts) > 0 && port != 0:
		return l, backend.Invalid("URL parameter port", strconv.Itoa(port), "a port behind the host, if the URL has one")
	case len(u.Hosts) > 0 && database != "":
		return l, backend.Invalid("URL parameter db", database, "a database in the path, if the URL has a host")
	case len(u.Hosts) > 0:
	case dir == "" && database != "":
		l.dir, l.database, path = u.Path, database, ""
	case database != "":
		return l, backend.Invalid("URL parameter db", database, "a database in the path, if host has a directory")
	default:
		l.dir = dir
	}
	if len(u.Hosts) == 0 && !strings.HasPrefix(l.dir, "/") || strings.Contains(path, "/") {
		return l, backend.Invalid("URL", cmp.Or(l.dir, u.Path), form)
	}
	l.port = strconv.Itoa(cmp.Or(port, 5432))
	if name := filepath.Base(l.dir); strings.HasPrefix(name, socketName) { // the socket itself
		l.dir, l.port = filepath.Dir(l.dir), strings.TrimPrefix(name, socketName)
	}
	return l, nil
}

// setListen sets the options of the URL parameter listen.
func (o *options) setListen(
	listen string, u *backend.URL, database string, q url.Values, dialTimeout time.Duration,
) error {
	o.listen = listen != "false"
	if listen == "true" || listen == "false" {
		return nil
	}
	hosts := strings.Split(listen, ",")
	if slices.ContainsFunc(hosts, isNotHost) {
		// The value is not repeated: it may be a URL with a password.
		return backend.Invalid("URL parameter listen", "something else", "true, false, or host[:port][,host[:port]...] of the server itself")
	}
	cfg, err := connConfig(u, location{hosts: hosts, database: database}, q, dialTimeout)
	if err == nil {
		o.direct = cfg.ConnConfig
	}
	return err
}

// connConfig returns the configuration of connections to a database.
func connConfig(u *backend.URL, at location, q url.Values, dialTimeout time.Duration) (*pgxpool.Config, error) {
	// pgx parses a URL without the password, so its errors cannot contain it.
	if at.dir != "" {
		q = maps.Clone(q)
		q.Set("host", at.dir)
		q.Set("port", at.port)
	}
	plain := url.URL{Scheme: "postgres", Host: strings.Join(at.hosts, ","), Path: "/" + at.database, RawQuery: q.Encode()}
	if u.User != nil {
		plain.User = url.User(u.User.Username())
	}
	cfg, err := pgxpool.ParseConfig(plain.String())
	if err != nil {
		return nil, fmt.Errorf("%w URL of scheme %s: %w", backend.ErrInvalid, u.Scheme, err)
	}
	c := cfg.ConnConfig
	if password, ok := u.User.Password(); ok {
		c.Password = password
	}
	c.ConnectTimeout = dialTimeout
	// The listening connection sends nothing: only the kernel notices that it is dead.
	d := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	c.DialFunc = d.DialContext
	return cfg, nil
}

// cancelKey is in the context of the cancel requests of awaitLate.
type cancelKey struct{}

// suppressCancel keeps pgx from sending a cancel request when it closes a connection, which may take 15 s, and awaitLate
// from sending one through a pooler: PgBouncer 1.18 to 1.20 may end when it receives one (its issue 822). Each
// connection dials once for itself.
func (o *options) suppressCancel(_ context.Context, c *pgx.ConnConfig) error {
	var connected atomic.Bool
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() && (o.pooled.Load() || ctx.Value(cancelKey{}) == nil) {
			return nil, errors.New("no cancel request is sent")
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(context.Context, *pgconn.PgConn) error {
		connected.Store(true)
		return nil
	}
	return nil
}

// isNotHost reports whether s is neither host nor host:port.
func isNotHost(s string) bool {
	u, err := url.Parse("x://" + s)
	return err != nil || s == "" || u.Host != s
}
