package zklock

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() { backend.Register("zk", Open) }

// Open opens a backend from a URL. The package documentation describes its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	b, err := parse(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withLimit(ctx, b.opt.openTimeout)
	defer cancel()
	l, err := probe(ctx, b.dial, b.addrs, b.dialTimeout)
	if err != nil {
		return nil, err
	}
	if err := b.prepare(ctx, l); err != nil {
		return nil, err
	}
	return b, nil
}

// New returns a backend on the caller's connection, which the driver never closes. Its
// session holds all locks, so its timeout is the greatest TTL. A shorter TTL limits how
// long a holder trusts its lock without a renewal, while the service keeps the lock of
// a crashed holder for the whole timeout. timeout is what [zk.Connect] was given; New
// asks the server what it grants for that. Use a separate connection for locks: they
// wait for whatever else the connection transports.
//
// New takes a little more than half a tick of the server, to learn how long the
// session lasts. It fails if the server does not answer before ctx ends, or within 10 s.
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
	ctx, cancel := withLimit(ctx, o.openTimeout)
	defer cancel()
	for conn.Server() == "" || conn.State() != zk.StateHasSession {
		sleep(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("zookeeper: the connection given to New is %v: %w", conn.State(), endOf(ctx))
		}
	}
	b.addrs = []string{conn.Server()}
	l, err := probe(ctx, o.dial, b.addrs, o.openTimeout)
	if err != nil {
		return nil, err
	}
	l.most = min(max(timeout.Truncate(time.Millisecond), l.least), l.most)
	if err := b.prepare(ctx, l); err != nil {
		return nil, err
	}
	return b, nil
}

// prepare creates the node below which all locks are. It closes b if that fails.
func (b *Backend) prepare(ctx context.Context, l limits) error {
	b.setLimits(l)
	s, err := b.anySession(ctx)
	if err == nil {
		defer s.release()
		err = s.createBase(ctx)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = b.Close(ctx) // err is more important
	}
	return err
}

func parse(u *backend.URL) (*Backend, error) {
	p := u.Params
	o := defaults()
	o.prefix = p.String("prefix", DefaultPrefix)
	o.root = strings.TrimRight(u.Path, "/")
	dialTimeout := p.Duration("dial_timeout", 3*time.Second)
	o.openTimeout = p.Duration("open_timeout", 10*time.Second)
	auth := p.Enum("auth", "", "digest")
	files := tlsurl.Read(p)
	secure := p.Bool("tls", false)
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := checkPrefix(o.prefix); err != nil {
		return nil, err
	}
	if err := checkRoot(o.root); err != nil {
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
