package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() { backend.Register("zk", Open) }

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	b, err := parse(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.opt.wait)
	defer cancel()
	if b.limits, err = probe(ctx, b.dial, b.addrs, b.dialTimeout); err == nil {
		b.declare()
		err = b.prepare(ctx)
	}
	if err != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = b.Close(last) // err is the one that matters
		return nil, err
	}
	return b, nil
}

// New makes a backend of the caller's connection, which is never closed. Its
// session holds all locks, so its timeout is the greatest TTL; a TTL that is less
// is how long a holder trusts its lock without a renewal, while the service keeps
// what a crashed holder had for the whole timeout. timeout is what [zk.Connect]
// was given; the server is asked what it makes of that. Use a connection of its
// own for locks: they wait for whatever else the connection transports.
//
// New takes a little more than half a tick of the server's, to learn how long the
// session lasts. It fails if the server does not answer before ctx ends.
func New(ctx context.Context, conn *zk.Conn, timeout time.Duration, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, f := range opts {
		if err := f(&o); err != nil {
			return nil, err
		}
	}
	if conn == nil || timeout <= 0 {
		return nil, backend.Invalid("connection or session timeout", timeout, "a connection and what it was opened with")
	}
	b := newBackend(o)
	b.given = conn
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	addr, err := server(ctx, conn)
	if err != nil {
		return nil, err
	}
	b.addrs = []string{addr}
	l, err := probe(ctx, o.dial, b.addrs, o.wait)
	if err != nil {
		return nil, err
	}
	b.limits = limits{l.least, min(max(timeout.Truncate(time.Millisecond), l.least), l.most)}
	b.declare()
	if err := b.prepare(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// server is the address that a connection uses.
func server(ctx context.Context, conn *zk.Conn) (string, error) {
	for {
		if addr := conn.Server(); addr != "" && conn.State() == zk.StateHasSession {
			return addr, nil
		}
		sleep(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			return "", fmt.Errorf("zookeeper: the connection given to New is %v: %w", conn.State(), ctx.Err())
		}
	}
}

// prepare makes sure of the node under which all locks stand.
func (b *Backend) prepare(ctx context.Context) error {
	s, err := b.any(ctx)
	if err != nil {
		return err
	}
	defer s.unuse()
	return b.createBase(ctx, s)
}

func (b *Backend) createBase(ctx context.Context, s *session) error {
	found, _, err := call(ctx, s, false, func(c *zk.Conn) (bool, error) {
		ok, _, err := c.Exists(b.base)
		return ok, err
	})
	if err != nil || found {
		return explain(err, b.base)
	}
	_, _, err = call(ctx, s, true, func(c *zk.Conn) (string, error) {
		return c.Create(b.base, nil, zk.FlagPersistent, b.opt.acl)
	})
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w chroot %.200q: there is no such node; create it, or use another path", backend.ErrInvalid, b.opt.root)
	}
	return explain(err, b.base)
}

func parse(u *backend.URL) (*Backend, error) {
	p := u.Params
	o := defaults()
	o.prefix = p.String("prefix", DefaultPrefix)
	o.root = strings.TrimRight(u.Path, "/")
	dialTimeout := p.Duration("dial_timeout", 3*time.Second)
	o.wait = p.Duration("open_timeout", 10*time.Second)
	auth := p.Enum("auth", "", "digest")
	files := tlsurl.Read(p)
	secure := p.Bool("tls", false)
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPrefix(o.prefix), checkRoot(o.root)); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, backend.Invalid("URL hosts", "", "zk://host[:port][,host[:port]...][/chroot]")
	}
	b := newBackend(o)
	b.own, b.dialTimeout = true, dialTimeout
	for _, h := range u.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "2181")
		}
		b.addrs = append(b.addrs, h)
	}
	switch {
	case u.User != nil:
		password, _ := u.User.Password()
		if u.User.Username() == "" || password == "" {
			return nil, fmt.Errorf("%w URL: want user:password@ with both, for auth=digest", backend.ErrInvalid)
		}
		b.auth = []byte(u.User.Username() + ":" + password)
		b.opt.acl = zk.AuthACL(zk.PermAll)
	case auth == "digest":
		return nil, fmt.Errorf("%w URL: auth=digest needs user:password@", backend.ErrInvalid)
	}
	t, err := files.Config(secure, "tls=true")
	b.dial = dialTCP(t)
	return b, err
}
