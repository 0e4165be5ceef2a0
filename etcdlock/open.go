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
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	backend.Register("etcd", Open)
	backend.Register("etcds", Open)
}

const (
	defaultPort  = "2379"
	maxQueueView = 10000
)

type options struct {
	prefix      string
	queueView   int           // contending processes up to which waiters watch the whole queue
	openTimeout time.Duration // of opening, and of single requests in the background
}

func defaults() options {
	return options{prefix: DefaultPrefix, queueView: 32, openTimeout: 5 * time.Second}
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

// WithQueueView sets the number of contending processes up to which a waiter watches
// the whole queue of its lock; the default is 32. A hand-off takes one round trip then,
// and each waiting process receives two events. With more processes a waiter watches its
// predecessor. A hand-off takes two round trips then, and one process receives an event.
// Readers and permits that wait always watch the whole queue.
func WithQueueView(processes int) Option {
	return func(o *options) error {
		if processes < 0 || processes > maxQueueView {
			return backend.Invalid("processes that follow a queue", processes, "0 to 10000")
		}
		o.queueView = processes
		return nil
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
	b := &Backend{
		client: client, opt: o, root: escape(o.prefix) + "/",
		sessions: map[int64]*session{}, expired: map[*session]struct{}{},
		attempts: map[string]*attempt{}, views: map[string]*view{},
		opening: make(chan struct{}, 1), openingOther: make(chan struct{}, 1), counting: make(chan struct{}, 1),
		acquiring: make(chan struct{}, maxAcquiring),
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	limited, cancel := context.WithTimeout(ctx, o.openTimeout)
	defer cancel()
	if err := b.probe(limited); err != nil {
		err = b.readError(ctx, err)
		b.stop()
		return nil, err
	}
	return b, nil
}

// probe sets minTTL. Servers raise a TTL that is shorter than a few election timeouts
// without an error.
func (b *Backend) probe(ctx context.Context) error {
	if _, err := b.client.Get(ctx, b.root, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithCountOnly()); err != nil {
		if cause := b.connectionError(); cause != nil {
			return cause
		}
		return err
	}
	l, err := b.client.Grant(ctx, 1)
	if err != nil {
		return err
	}
	_, _ = b.client.Revoke(ctx, l.ID) // it expires soon anyway
	b.minTTL = time.Duration(l.TTL) * time.Second
	return nil
}

// connectionError returns the reason why there is no connection, or nil if there is
// one. The client repeats a read until its deadline, and returns the deadline only.
func (b *Backend) connectionError() error {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := etcdserverpb.NewLeaseClient(b.client.ActiveConnection()).LeaseKeepAlive(ctx) // not repeated
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
	b.ownsClient, b.conns = true, conns
	return b, nil
}

func parse(u *backend.URL) (settings, error) {
	p := u.Params
	s := settings{options: defaults()}
	s.openTimeout = p.Duration("dial_timeout", s.openTimeout)
	s.queueView = p.Int("queue_view", s.queueView, 0, maxQueueView)
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
