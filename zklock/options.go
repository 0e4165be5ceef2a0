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
	prefix string
	root   string
	acl    []zk.ACL
	dial   dialer // how New reaches the server to ask for its bounds
	wait   time.Duration
}

func defaults() options {
	return options{prefix: DefaultPrefix, acl: zk.WorldACL(zk.PermAll), dial: dialTCP(nil), wait: 10 * time.Second}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets the node under which the locks stand, instead of
// [DefaultPrefix]. All who share a lock must use the same.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithChroot sets the path of an existing node under which the prefix stands, as
// the path of a URL does.
func WithChroot(path string) Option {
	return func(o *options) error {
		o.root = path
		return checkRoot(path)
	}
}

// WithACL sets who may use the nodes that are created; by default everybody.
func WithACL(acl ...zk.ACL) Option {
	return func(o *options) error {
		if len(acl) == 0 {
			return backend.Invalid("ACL", len(acl), "one entry or more")
		}
		o.acl = acl
		return nil
	}
}

// WithDialer sets how New reaches the server, to ask for its bounds of session
// timeouts; by default over TCP. A caller whose connection uses TLS needs it.
func WithDialer(dial func(ctx context.Context, addr string) (net.Conn, error)) Option {
	return func(o *options) error { o.dial = dial; return nil }
}

// dialTCP connects, over TLS if that is not nil. A dead connection is noticed by
// the session's pings.
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
