package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
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

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	cfg, o, err := parse(u)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.ConnConfig.ConnectTimeout+o.timeout)
	defer cancel()
	b, err := open(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	b.own = true
	return b, nil
}

// passed on to the client library as they are
var passed = []string{"sslrootcert", "sslcert", "sslkey", "sslsni", "application_name"}

func parse(u *backend.URL) (*pgxpool.Config, options, error) {
	p, o := u.Params, defaults()
	o.table = p.String("table", o.table)
	o.prefix = p.String("prefix", o.prefix)
	o.create = p.Bool("create", true)
	listen := p.String("listen", "true")
	o.timeout = p.Duration("timeout", o.timeout)
	dial := p.Duration("dial_timeout", 3*time.Second)
	size := p.Int("pool_size", 0, 1, 10000)
	q := url.Values{}
	q.Set("sslmode", p.Enum("sslmode", "prefer", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"))
	for _, name := range passed {
		if v := p.String(name, ""); v != "" {
			q.Set(name, v)
		}
	}
	attrs := "any"
	if len(u.Hosts) > 1 {
		attrs = "read-write" // one of them is the primary
	}
	q.Set("target_session_attrs", p.Enum("target_session_attrs", attrs, "any", "read-write", "primary"))
	if err := p.Err(); err != nil {
		return nil, o, err
	}
	if _, err := quote(o.table); err != nil {
		return nil, o, err
	}
	if err := checkPrefix(o.prefix); err != nil {
		return nil, o, err
	}
	o.listen = listen != "false"
	if len(u.Hosts) == 0 || strings.Contains(strings.TrimPrefix(u.Path, "/"), "/") {
		return nil, o, backend.Invalid("URL", u.Path, u.Scheme+"://[user[:password]@]host[:port][,host[:port]...]/database")
	}
	cfg, err := config(u, u.Hosts, q, dial)
	if err != nil {
		return nil, o, err
	}
	if listen != "true" && listen != "false" {
		hosts := strings.Split(listen, ",")
		if !slices.ContainsFunc(hosts, notHost) {
			var direct *pgxpool.Config
			direct, err = config(u, hosts, q, dial)
			if err == nil {
				o.direct = direct.ConnConfig
			}
		} else {
			// not repeated: it may be a URL with a password
			err = backend.Invalid("URL parameter listen", "something else", "true, false, or host[:port][,host[:port]...] of the server itself")
		}
		if err != nil {
			return nil, o, err
		}
	}
	if size > 0 {
		cfg.MaxConns = int32(size)
	}
	o.noCancel = new(atomic.Bool)
	cfg.BeforeConnect = o.dialOnce
	// A connection that the server has closed is found out without a round trip, in
	// most cases; what is to be read on any other is not worth more than one.
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return !silent(p.Conn.PgConn().Conn()) }
	return cfg, o, nil
}

// config is that of connections to hosts, with all else as in the URL.
func config(u *backend.URL, hosts []string, q url.Values, dial time.Duration) (*pgxpool.Config, error) {
	// Without the password, which thus cannot get into an error.
	plain := url.URL{Scheme: "postgres", Host: strings.Join(hosts, ","), Path: u.Path, RawQuery: q.Encode()}
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
	c.ConnectTimeout = dial
	// without a statement a dead connection is noticed by the kernel only
	d := &net.Dialer{Timeout: dial, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	c.DialFunc = d.DialContext
	return cfg, nil
}

var errNoCancel = errors.New("no cancellation is asked for through a pooler")

// dialOnce keeps the client library from connecting a second time for a connection,
// to ask for the cancellation of a statement whose context has ended. That is of
// little use, as statements are short, and ends PgBouncer 1.18 to 1.20 now and then
// (its issue 822).
func (o *options) dialOnce(_ context.Context, c *pgx.ConnConfig) error {
	var made atomic.Bool
	dial, after := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if made.Load() && o.noCancel.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, addr)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		made.Store(true)
		if after == nil {
			return nil
		}
		return after(ctx, conn)
	}
	return nil
}

// notHost says that something is not host or host:port.
func notHost(s string) bool {
	u, err := url.Parse("x://" + s)
	return err != nil || s == "" || u.Host != s
}
