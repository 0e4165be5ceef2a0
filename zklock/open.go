package zklock

import (
	"cmp"
	"context"
	"fmt"
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
	if err == nil {
		err = b.open(ctx)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// New returns a backend of these servers, each host or host:port. It opens its own
// sessions: only then it knows when each request was sent, and so how long a
// session lasts. For requests of the caller in such a session see [Backend.Client].
func New(ctx context.Context, servers []string, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, f := range opts {
		if err := f(&o); err != nil {
			return nil, err
		}
	}
	if len(servers) == 0 {
		return nil, backend.Invalid("servers", "none", "host or host:port of one server or more")
	}
	b := newBackend(o, servers)
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// open asks a server for its bounds and creates the node below which all locks are.
func (b *Backend) open(ctx context.Context) error {
	limited, cancel := withLimit(ctx, b.svc.opt.openTimeout)
	defer cancel()
	l, err := probe(limited, b.svc.opt.dial, b.svc.addrs, b.svc.opt.dialTimeout)
	if err == nil {
		err = b.svc.prepare(limited, l)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = b.Close(ctx) // err is more important
		return err
	}
	if b.svc.opt.retention > 0 {
		b.svc.life.Go(b.svc.deleteUnused)
	}
	return nil
}

// prepare creates the node below which all locks are.
func (s *service) prepare(ctx context.Context, l limits) error {
	s.limits = l
	ss, _, err := s.home(ctx)
	if err == nil {
		err = ss.createBase(ctx)
	}
	return err
}

func parse(u *backend.URL) (*Backend, error) {
	p := u.Params
	o := defaults()
	o.prefix = p.String("prefix", DefaultPrefix)
	o.root = strings.TrimRight(u.Path, "/")
	o.dialTimeout = p.Duration("dial_timeout", o.dialTimeout)
	o.openTimeout = p.Duration("open_timeout", o.openTimeout)
	o.retention = p.Retention()
	auth := p.Enum("auth", "", "digest")
	files := tlsurl.Read(p)
	secure := p.Bool("tls", false)
	if err := cmp.Or(p.Err(), checkPrefix(o.prefix), checkRoot(o.root)); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, backend.Invalid("URL hosts", "", "zk://host[:port][,host[:port]...][/chroot]")
	}
	b := newBackend(o, u.Hosts)
	switch {
	case u.User != nil:
		password, _ := u.User.Password()
		if u.User.Username() == "" || password == "" {
			return nil, fmt.Errorf("%w URL: want user:password@ with both, for auth=digest", backend.ErrInvalid)
		}
		b.svc.auth = []byte(u.User.Username() + ":" + password)
		b.svc.opt.acl = zk.AuthACL(zk.PermAll)
	case auth == "digest":
		return nil, fmt.Errorf("%w URL: auth=digest needs user:password@", backend.ErrInvalid)
	}
	t, err := files.Config(secure, "tls=true")
	b.svc.opt.dial = dialTCP(t)
	return b, err
}
