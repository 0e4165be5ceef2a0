package etcdlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	backend.Register("etcd", Open)
	backend.Register("etcds", Open)
}

const defaultPort = "2379"

// settings are what a URL says.
type settings struct {
	options
	endpoints      []string
	user, password string
	namespace      string
	dial           time.Duration
	tls            *tls.Config
}

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	b, err := open(ctx, client, s.options)
	if err != nil {
		_ = client.Close() // err is the one that matters
		return nil, err
	}
	b.own = true
	return b, nil
}

func parse(u *backend.URL) (settings, error) {
	p := u.Params
	s := settings{options: defaults()}
	s.dial = p.Duration("dial_timeout", s.open)
	s.open = s.dial
	s.viewMax = p.Int("queue_view", s.viewMax, 0, maxView)
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
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), defaultPort)
		}
		s.endpoints = append(s.endpoints, scheme+h)
	}
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
		if s.user == "" || s.password == "" {
			return s, fmt.Errorf("%w URL: a user needs a password, and a password a user", backend.ErrInvalid)
		}
	}
	var err error
	s.tls, err = files.Config(secure, "etcds:// or tls=true")
	return s, err
}

// connect makes the client: it gives up a dead connection within seconds, dials
// again soon, and logs nothing.
func (s *settings) connect(ctx context.Context) (*clientv3.Client, error) {
	dial := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: s.dial,
	})}
	if s.tls != nil && s.tls.ServerName != "" {
		dial = append(dial, grpc.WithTransportCredentials(named{credentials.NewTLS(s.tls), s.tls.ServerName}))
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: s.endpoints, Username: s.user, Password: s.password, TLS: s.tls,
		DialTimeout: s.dial, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger:      zap.NewNop(),
		DialOptions: dial,
	})
	if err != nil {
		if end := ended(ctx); end != nil && !errors.Is(err, end) {
			err = fmt.Errorf("%w: %w", err, end)
		}
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(s.endpoints, ","), err)
	}
	if s.namespace != "" {
		c.KV = namespace.NewKV(c.KV, s.namespace)
		c.Watcher = namespace.NewWatcher(c.Watcher, s.namespace)
		c.Lease = namespace.NewLease(c.Lease, s.namespace)
	}
	return c, nil
}

// named checks a server's certificate against one name, where gRPC would take that
// of each endpoint.
type named struct {
	credentials.TransportCredentials
	name string
}

func (n named) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, n.name, conn)
}

func (n named) Clone() credentials.TransportCredentials {
	return named{n.TransportCredentials.Clone(), n.name}
}
