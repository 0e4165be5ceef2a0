package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	backend.Register("etcd", Open)
	backend.Register("etcds", Open)
}

const defaultPort = "2379"

type options struct {
	prefix      string
	openTimeout time.Duration // of opening, and of single requests in the background
}

func defaults() options {
	return options{prefix: DefaultPrefix, openTimeout: 5 * time.Second}
}

// Option changes what New does.
type Option func(*options) error

// WithPrefix sets the first part of all keys, instead of [DefaultPrefix]. All clients
// of a lock must use the same prefix. A slash in it is escaped like one in a name. To
// move the locks deeper into a tree, wrap the client with package namespace of etcd.
func WithPrefix(prefix string) Option {
	return func(o *options) error {
		o.prefix = prefix
		return checkPrefix(prefix)
	}
}

// New returns a backend that uses client and never closes it. It asks the servers for
// the shortest lease that they grant, for at most 5 s. The client should have
// DialKeepAliveTime and DialKeepAliveTimeout set, to notice a dead connection: that takes their
// sum, and at least 10 s. The driver does not close connections of the client.
func New(client *clientv3.Client, opts ...Option) (*Backend, error) {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	return open(context.Background(), client, o)
}

func open(ctx context.Context, client *clientv3.Client, o options) (*Backend, error) {
	if client == nil {
		return nil, backend.Invalid("client", "nil", "a *clientv3.Client")
	}
	s := &service{
		client: client, opt: o, root: escape(o.prefix) + "/", removing: make(chan struct{}, maxRequests),
		sessions: map[clientv3.LeaseID]*session{},
	}
	s.keeper.s = s
	b := &Backend{places.New(s, places.Config{
		SessionTTL:     func(ttl time.Duration) time.Duration { return time.Duration(wholeSeconds(ttl)) * time.Second },
		RequestTimeout: o.openTimeout,
	}), s}
	s.life, s.events = b.Life(), b
	s.batches = call.NewBatches(s.life, maxRequests, maxTogether, spacing, s.send)
	limited, cancel := context.WithTimeout(ctx, o.openTimeout)
	defer cancel()
	if err := s.probe(limited); err != nil {
		err = s.readError(ctx, err)
		s.life.Stop()
		return nil, err
	}
	return b, nil
}

// probe sets minTTL. Servers raise a TTL that is shorter than a few election timeouts
// without an error.
func (s *service) probe(ctx context.Context) error {
	if _, err := s.client.Get(ctx, s.root, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithCountOnly()); err != nil {
		if cause := s.connectionError(); cause != nil {
			return cause
		}
		return err
	}
	l, err := s.client.Grant(ctx, 1)
	if err != nil {
		return err
	}
	_, _ = s.client.Revoke(ctx, l.ID) // it expires soon anyway
	s.minTTL = time.Duration(l.TTL) * time.Second
	return nil
}

// connectionError returns the reason why there is no connection, or nil if there is
// one. The client repeats a read until its deadline, and returns the deadline only.
func (s *service) connectionError() error {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx) // not repeated
	if disconnected(err) {
		return err
	}
	return nil
}

// settings are the contents of a URL.
type settings struct {
	options
	client    clientv3.Config
	namespace string
}

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	conns := newConnections(s.client.TLS)
	client, err := s.connect(ctx, conns)
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, client, s.options)
	if err != nil {
		_ = client.Close() // err is the cause
		return nil, err
	}
	b.svc.ownsClient, b.svc.conns = true, conns
	return b, nil
}

func parse(u *backend.URL) (settings, error) {
	p := u.Params
	s := settings{options: defaults()}
	s.openTimeout = p.Duration("dial_timeout", s.openTimeout)
	s.namespace = p.String("namespace", "")
	secure := p.Bool("tls", u.Scheme == "etcds")
	files := tlsurl.Read(p)
	if err := p.Err(); err != nil {
		return s, err
	}
	if u.Scheme == "etcds" && !secure {
		return s, backend.Invalid("URL parameter tls", "false", "true, or absent, with etcds://")
	}
	if prefix := strings.TrimPrefix(u.Path, "/"); prefix != "" {
		s.prefix = prefix
	}
	if err := checkPrefix(s.prefix); err != nil {
		return s, err
	}
	if len(u.Hosts) == 0 {
		return s, backend.Invalid("URL hosts", "", u.Scheme+"://host[:port][,host...][/prefix]")
	}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	for _, h := range u.Hosts {
		s.client.Endpoints = append(s.client.Endpoints, scheme+backend.HostPort(h, defaultPort))
	}
	if u.User != nil {
		s.client.Username = u.User.Username()
		s.client.Password, _ = u.User.Password()
		if s.client.Username == "" || s.client.Password == "" {
			return s, fmt.Errorf("%w URL: a user needs a password, and a password a user", backend.ErrInvalid)
		}
	}
	var err error
	s.client.TLS, err = files.Config(secure, "etcds:// or tls=true")
	return s, err
}

// connect returns a client that detects a dead connection within seconds, dials again
// soon, and logs nothing.
func (s *settings) connect(ctx context.Context, conns *connections) (*clientv3.Client, error) {
	cfg := s.client
	cfg.DialTimeout, cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = s.openTimeout, keepAliveTime, keepAliveTimeout
	cfg.Logger = zap.NewNop()
	cfg.DialOptions = []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: s.openTimeout,
		}),
		grpc.WithTransportCredentials(conns), // after those of package clientv3, of the same configuration
		grpc.WithChainUnaryInterceptor(conns.intercept),
	}
	if cfg.TLS != nil && cfg.TLS.ServerName != "" { // else gRPC verifies the host of each endpoint
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithAuthority(cfg.TLS.ServerName))
	}
	life, end := context.WithCancel(context.Background())
	cfg.Context = life // New has no other context, and waits for the answer to the password
	connected := context.AfterFunc(ctx, end)
	c, err := clientv3.New(cfg)
	if !connected() && err == nil {
		_ = c.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, serverError(ctx, cfg.Endpoints, err)
	}
	if s.namespace != "" {
		c.KV = namespace.NewKV(c.KV, s.namespace)
		c.Watcher = namespace.NewWatcher(c.Watcher, s.namespace)
		c.Lease = namespace.NewLease(c.Lease, s.namespace)
	}
	return c, nil
}
