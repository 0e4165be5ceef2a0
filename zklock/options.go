package zklock

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

type options struct {
	prefix      string
	root        string
	acl         []zk.ACL
	dial        dialer
	dialTimeout time.Duration
	openTimeout time.Duration
	retention   time.Duration
}

func defaults() options {
	return options{prefix: DefaultPrefix, acl: zk.WorldACL(zk.PermAll), dial: dialTCP(nil), dialTimeout: 3 * time.Second, openTimeout: 10 * time.Second, retention: backend.DefaultRetention}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets the node below which the locks are, instead of [DefaultPrefix]. All
// clients of a lock must use the same prefix.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithChroot sets the path of the existing node that contains the prefix, as the
// path of a URL does.
func WithChroot(path string) Option {
	return func(o *options) error {
		o.root = path
		return checkRoot(path)
	}
}

// WithACL sets the ACL of the nodes that the driver creates. The default permits
// everything to all users.
func WithACL(acl ...zk.ACL) Option {
	return func(o *options) error {
		if len(acl) == 0 {
			return backend.Invalid("ACL", len(acl), "one entry or more")
		}
		o.acl = acl
		return nil
	}
}

// WithDialer sets how the driver connects to a server, for example with TLS. The default is
// TCP.
func WithDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(o *options) error { o.dial = dial; return nil }
}

// dialTCP returns a dialer for TCP, with TLS if c is not nil.
func dialTCP(c *tls.Config) dialer {
	d := &net.Dialer{KeepAlive: 15 * time.Second}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if c == nil {
			return d.DialContext(ctx, "tcp", addr)
		}
		t := &tls.Dialer{NetDialer: d, Config: c}
		return t.DialContext(ctx, "tcp", addr)
	}
}
