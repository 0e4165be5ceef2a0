package memcachelock

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	backend.Register("memcached", Open)
	backend.Register("memcacheds", Open)
}

const (
	defaultPort = "11211"
	maxPrefix   = 64
	maxIdle     = 64 // connections to a server that stay open
)

type options struct {
	prefix string
	margin time.Duration
}

func defaults() options { return options{prefix: DefaultPrefix, margin: record.DefaultMargin} }

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

// New returns a backend that uses client and never closes it. Set the client's Timeout, which
// bounds each exchange, well below the TTL, and its MaxIdleConns to the number of requests at
// a time. New makes two requests to verify that the server has CAS.
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
	return open(context.Background(), client, o)
}

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	o, client, err := parse(u)
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, client, o)
	if err != nil {
		_ = client.Close() // err is the cause
		return nil, fmt.Errorf("memcached at %s: %w", strings.Join(u.Hosts, ","), err)
	}
	b.ownsClient = true
	return b, nil
}

func parse(u *backend.URL) (options, *memcache.Client, error) {
	o, p := defaults(), u.Params
	timeout := p.Duration("timeout", time.Second)
	o.margin = p.Duration("margin", o.margin)
	secure := p.Bool("tls", u.Scheme == "memcacheds")
	files := tlsurl.Read(p)
	if err := p.Err(); err != nil {
		return o, nil, err
	}
	if u.Scheme == "memcacheds" && !secure {
		return o, nil, backend.Invalid("URL parameter tls", "false", "true, or absent, with memcacheds://")
	}
	if prefix := strings.TrimPrefix(u.Path, "/"); prefix != "" {
		o.prefix = prefix
	}
	if err := cmp.Or(checkPrefix(o.prefix), checkMargin(o.margin)); err != nil {
		return o, nil, err
	}
	if len(u.Hosts) == 0 {
		return o, nil, backend.Invalid("URL hosts", "", u.Scheme+"://host[:port][,host[:port]...][/prefix]")
	}
	var all servers
	for _, h := range u.Hosts {
		all = append(all, server(backend.HostPort(h, defaultPort)))
	}
	d := dialer{}
	if u.User != nil {
		d.user = u.User.Username()
		d.password, _ = u.User.Password()
		if d.user == "" || d.password == "" || strings.ContainsAny(d.user+d.password, " \r\n") {
			return o, nil, fmt.Errorf("%w URL user and password: want both, without spaces and line ends", backend.ErrInvalid)
		}
	}
	config, err := files.Config(secure, "memcacheds:// or tls=true")
	if err != nil {
		return o, nil, err
	}
	if config != nil {
		d.tls = &tls.Dialer{Config: config}
	}
	client := memcache.NewFromSelector(all)
	client.Timeout, client.MaxIdleConns, client.DialContext = timeout, maxIdle, d.dial
	return o, client, nil
}
