package memcachelock

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	backend.Register("memcached", Open)
	backend.Register("memcacheds", Open)
}

const (
	defaultPort        = "11211"
	maxPrefix          = 64
	defaultConnections = 16 // to a server
	minConnections     = 2
	maxConnections     = 1024
)

type options struct {
	prefix      string
	margin      time.Duration
	connections int
}

func defaults() options {
	return options{prefix: DefaultPrefix, margin: 10 * time.Minute, connections: defaultConnections}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets the first part of all keys, instead of [DefaultPrefix]: 1 to 64 printable ASCII
// characters without space and colon. All clients of a lock must use the same prefix.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// WithMargin sets for how long the server keeps an item beyond the TTL of its lease, from 1 s
// to 24 h; the default is 10 minutes. See Limits in the documentation of the package.
func WithMargin(d time.Duration) Option {
	return func(o *options) error {
		o.margin = d
		return checkMargin(d)
	}
}

// WithConnections sets how many connections to a server are in use at a time, from 2 to 1024; the default is 16. With a
// client of several servers it is the number for all of them. A quarter is kept for renewals and releases.
func WithConnections(n int) Option {
	return func(o *options) error {
		o.connections = n
		if n < minConnections || n > maxConnections {
			return backend.Invalid("connections", n, fmt.Sprintf("%d to %d", minConnections, maxConnections))
		}
		return nil
	}
}

func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > maxPrefix || strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r >= 127 || r == ':' }) {
		return backend.Invalid("prefix", prefix, fmt.Sprintf("1 to %d printable ASCII characters without space and colon", maxPrefix))
	}
	return nil
}

func checkMargin(d time.Duration) error {
	if d < time.Second || d > 24*time.Hour {
		return backend.Invalid("margin", d, "1s to 24h")
	}
	return nil
}

// New returns a backend that uses client. It closes idle connections of the client after a request without an answer,
// and never the client itself, which stays usable. Set the client's Timeout, which bounds each exchange, well below the
// TTL, and its MaxIdleConns to the number of [WithConnections]. New verifies that the server has CAS.
func New(client *memcache.Client, opts ...Option) (*Backend, error) {
	if client == nil {
		return nil, backend.Invalid("client", "nil", "a *memcache.Client")
	}
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	return open(context.Background(), servers{{node: newNode(client, o.connections)}}, o)
}

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	o, nodes, err := parse(u)
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, nodes, o)
	if err != nil {
		_ = nodes.close() // err is the cause
		return nil, fmt.Errorf("memcached at %s: %w", cmp.Or(strings.Join(u.Hosts, ","), u.Path), err)
	}
	b.ownsClients = true
	return b, nil
}

func parse(u *backend.URL) (options, servers, error) {
	o, p := defaults(), u.Params
	timeout := p.Duration("timeout", time.Second)
	o.margin = p.Duration("margin", o.margin)
	o.connections = p.Int("connections", o.connections, minConnections, maxConnections)
	secure := p.Bool("tls", u.Scheme == "memcacheds")
	files := tlsurl.Read(p)
	var addresses []address
	prefix := strings.TrimPrefix(u.Path, "/")
	if isSocket(u) {
		addresses = []address{{"unix", u.Path}}
		prefix = p.String("prefix", "") // of other URLs it is the path
	}
	for _, h := range u.Hosts {
		addresses = append(addresses, address{"tcp", backend.HostPort(h, defaultPort)})
	}
	if err := p.Err(); err != nil {
		return o, nil, err
	}
	if u.Scheme == "memcacheds" && !secure {
		return o, nil, backend.Invalid("URL parameter tls", "false", "true, or absent, with memcacheds://")
	}
	o.prefix = cmp.Or(prefix, o.prefix)
	if err := cmp.Or(checkPrefix(o.prefix), checkMargin(o.margin)); err != nil {
		return o, nil, err
	}
	if len(addresses) == 0 {
		return o, nil, backend.Invalid("URL hosts", "",
			u.Scheme+"://host[:port][,host[:port]...][/prefix], or memcached:///path of a Unix socket")
	}
	d, err := parseDialer(u, files, secure)
	if err != nil {
		return o, nil, err
	}
	var nodes servers
	for _, a := range addresses {
		client := memcache.NewFromSelector(a)
		client.Timeout, client.MaxIdleConns, client.DialContext = timeout, o.connections, d.dial
		n := newNode(client, o.connections)
		n.dial = func(ctx context.Context) (net.Conn, error) { return d.dial(ctx, a.network, a.text) }
		nodes = append(nodes, server{a.text, n})
	}
	return o, nodes, nil
}

// isSocket reports whether a URL has the path of a Unix socket in place of hosts.
func isSocket(u *backend.URL) bool {
	return u.Scheme == "memcached" && len(u.Hosts) == 0 && path.IsAbs(u.Path) && u.Path != "/"
}

func parseDialer(u *backend.URL, files tlsurl.Files, secure bool) (*dialer, error) {
	d := &dialer{}
	if u.User != nil {
		d.user = u.User.Username()
		d.password, _ = u.User.Password()
		if d.user == "" || d.password == "" || strings.ContainsAny(d.user+d.password, " \r\n") {
			return nil, fmt.Errorf("%w URL user and password: want both, without spaces and line ends", backend.ErrInvalid)
		}
	}
	config, err := files.Config(secure, "memcacheds:// or tls=true")
	if config != nil {
		d.tls = &tls.Dialer{Config: config}
	}
	return d, err
}
