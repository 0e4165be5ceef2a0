// Package redisurl parses the URLs of the drivers redislock and redlock, and creates the clients.
package redisurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Settings are the settings in a URL.
type Settings struct {
	Scheme         string
	Prefix         string
	AllowEviction  bool
	Addrs          []string // host:port, or the path of a Unix socket
	Master         string   // name of the master behind Sentinel
	Dial, Read     time.Duration
	Replicas       int // that must acknowledge a grant
	ReplicaTimeout time.Duration
	Retention      time.Duration // of what a name leaves

	db               int
	user, password   string
	sentinelUser     string
	sentinelPassword string
	pool             int
	tls              *tls.Config
}

// Limits of a URL.
const (
	MaxReplicas = 100 // limit of Settings.Replicas
	MinNodes    = 3   // of Redlock
)

// OpenTimeout returns how long opening may take.
func (s *Settings) OpenTimeout() time.Duration { return 2 * (s.Dial + s.Read) }

// Parse parses a URL. The driver reads its own parameters before it; Parse returns ErrInvalid for a parameter with a bad value.
func Parse(u *backend.URL) (Settings, error) {
	p := u.Params
	s := Settings{Scheme: u.Scheme}
	s.Prefix = p.String("prefix", protocol.DefaultPrefix)
	s.Dial = p.Duration("dial_timeout", 3*time.Second)
	s.Read = p.Duration("read_timeout", 3*time.Second)
	s.pool = p.Int("pool_size", 0, 1, 100000)
	if u.Scheme != "redlock" { // its nodes are not replicated
		s.Replicas = p.Int("wait_replicas", 0, 0, MaxReplicas)
		s.ReplicaTimeout = p.Duration("wait_timeout", time.Second)
	}
	s.Retention = p.Retention()
	s.AllowEviction = p.Enum("eviction", "refuse", "refuse", "accept") == "accept"
	if isSocket(u) {
		s.db = p.Int("db", 0, 0, math.MaxInt32) // of other URLs it is the path
	}
	files := tlsurl.Read(p)
	secure := u.Scheme == "rediss"
	port := "6379"
	switch u.Scheme {
	case "redis+sentinel":
		port = "26379"
		s.sentinelUser, s.sentinelPassword = p.String("sentinel_user", ""), p.String("sentinel_password", "")
		secure = p.Bool("tls", false)
	case "redis+cluster", "redlock":
		secure = p.Bool("tls", false)
	}
	if err := cmp.Or(p.Err(), protocol.CheckPrefix(s.Prefix)); err != nil {
		return s, err
	}
	if s.Replicas > 0 && (s.ReplicaTimeout < time.Millisecond || s.ReplicaTimeout >= s.Read) {
		return s, backend.Invalid("URL parameter wait_timeout", s.ReplicaTimeout, fmt.Sprintf("1ms or more, and less than read_timeout, %v", s.Read))
	}
	if err := s.parseAddress(u, port); err != nil {
		return s, err
	}
	var err error
	s.tls, err = files.Config(secure, "rediss://, or tls=true with redis+sentinel, redis+cluster and redlock")
	return s, err
}

// isSocket reports whether a URL has the path of a Unix socket in place of a host.
func isSocket(u *backend.URL) bool {
	_, err := strconv.Atoi(strings.TrimPrefix(u.Path, "/"))
	return u.Scheme == "redis" && len(u.Hosts) == 0 && strings.HasPrefix(u.Path, "/") && err != nil && u.Path != "/"
}

func (s *Settings) parseAddress(u *backend.URL, port string) error {
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
	}
	for _, h := range u.Hosts {
		s.Addrs = append(s.Addrs, backend.HostPort(h, port))
	}
	if strings.Contains(u.Path, "@") { // the path may contain a part of the password
		return fmt.Errorf("%w URL: malformed; in a user name or password every '/', '?', '#' and '@' must be percent-encoded", backend.ErrInvalid)
	}
	db := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "redis+sentinel":
		s.Master, db, _ = strings.Cut(db, "/")
		if s.Master == "" || len(s.Addrs) == 0 {
			return backend.Invalid("URL of scheme redis+sentinel", u.Path, "redis+sentinel://sentinel[,sentinel...]/master[/db]")
		}
	case "redis+cluster":
		if len(s.Addrs) == 0 || (db != "" && db != "0") {
			return backend.Invalid("URL of scheme redis+cluster", u.Path, "redis+cluster://host[,host...], and no database but 0")
		}
	case "redlock":
		if len(s.Addrs) < MinNodes || len(slices.Compact(slices.Sorted(slices.Values(s.Addrs)))) < len(s.Addrs) {
			return backend.Invalid("URL hosts", strings.Join(u.Hosts, ","), "redlock://host,host,host[,host...][/db] with three different hosts or more")
		}
	default:
		if isSocket(u) {
			s.Addrs, db = []string{u.Path}, strconv.Itoa(s.db)
		}
		if len(s.Addrs) != 1 {
			return backend.Invalid("URL hosts", strings.Join(u.Hosts, ","),
				u.Scheme+"://host[:port][/db] with one host, or redis:///path of a Unix socket; see redis+sentinel and redis+cluster for more")
		}
	}
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	if err != nil || n < 0 {
		return backend.Invalid("URL path", u.Path, "the number of a database")
	}
	s.db = n
	return nil
}

// options returns the options of a client that closes a dead connection within seconds,
// dials once, and sends only what the protocol needs.
func (s *Settings) options() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: s.Addrs, DB: s.db, Username: s.user, Password: s.password, MasterName: s.Master,
		SentinelUsername: s.sentinelUser, SentinelPassword: s.sentinelPassword,
		DialTimeout: s.Dial, ReadTimeout: s.Read, WriteTimeout: s.Read, PoolSize: s.pool,
		DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		TLSConfig: s.tls, Dialer: s.dialer(),
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// clientLog writes the log lines of go-redis to slog at level Debug: package lock logs what matters
// of an outage, and go-redis would write a line for each connection to stderr.
type clientLog struct{}

func (clientLog) Printf(ctx context.Context, format string, v ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, "go-redis: "+fmt.Sprintf(format, v...))
	}
}

// setLogger replaces the logger of go-redis, which all clients of the program share.
var setLogger = sync.OnceFunc(func() { redis.SetLogger(clientLog{}) })

// Client returns the client of the scheme.
func (s *Settings) Client() redis.UniversalClient {
	setLogger()
	o := s.options()
	switch s.Scheme {
	case "redis+sentinel":
		return redis.NewFailoverClient(o.Failover())
	case "redis+cluster":
		c := o.Cluster()
		c.MaxRedirects, c.DisableRoutingPolicies = 3, true
		return redis.NewClusterClient(c)
	}
	return redis.NewClient(o.Simple())
}

func (s *Settings) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	// only keep-alives find a dead connection that is idle
	d := &net.Dialer{Timeout: s.Dial, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	var endpoints sync.Map // by address
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		e, _ := endpoints.LoadOrStore(addr, new(endpoint))
		if s.tls != nil {
			if c, err = s.handshake(ctx, c, addr); err != nil {
				return nil, err
			}
			return e.(*endpoint).conn(c, nil), nil
		}
		socket, _ := c.(syscall.Conn)
		return e.(*endpoint).conn(&plainConn{Conn: c, server: addr}, socket), nil
	}
}

func (s *Settings) handshake(ctx context.Context, c net.Conn, addr string) (net.Conn, error) {
	within, cancel := context.WithTimeout(ctx, s.Dial)
	defer cancel()
	config := s.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(c, config)
	err := t.HandshakeContext(within)
	if err == nil {
		return t, nil
	}
	_ = c.Close()
	if errors.Is(within.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: does this port use TLS?", s.Dial)
	}
	return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
}

// plainConn reports a server that refuses a connection, by words that precede any request
// or by closing it. go-redis would take such words for the reply to its first request,
// and report only that the next one fails.
type plainConn struct {
	net.Conn
	server   string
	accepted bool // something else was read
	refused  error
}

func (c *plainConn) Read(b []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	n, err := c.Conn.Read(b)
	switch {
	case c.accepted, timedOut(err):
		return n, err
	case err != nil:
		c.refused = fmt.Errorf("%s closed a new connection without an answer (too many clients, or a port for TLS): %w", c.server, err)
		return 0, c.refused
	}
	c.accepted = true
	for _, refusal := range []string{"-ERR max number of clients", "-DENIED "} {
		if words := string(b[:n]); strings.HasPrefix(words, refusal) {
			words, _, _ = strings.Cut(words[1:], "\r\n")
			c.refused = fmt.Errorf("%s refused the connection: %s", c.server, words)
			return 0, c.refused
		}
	}
	return n, nil
}

func (c *plainConn) Write(b []byte) (int, error) {
	if c.refused != nil {
		return 0, c.refused
	}
	return c.Conn.Write(b)
}

// Sentinels returns the options of a client for each sentinel.
func (s *Settings) Sentinels() (all []*redis.Options) {
	for _, addr := range s.Addrs {
		o := s.options()
		o.Addrs, o.DB, o.PoolSize = []string{addr}, 0, 1
		o.Username, o.Password = s.sentinelUser, s.sentinelPassword
		all = append(all, o.Simple())
	}
	return all
}

// Nodes returns a client of each address.
func (s *Settings) Nodes() (all []*redis.Client) {
	for _, addr := range s.Addrs {
		one := *s
		one.Addrs = []string{addr}
		all = append(all, one.Client().(*redis.Client))
	}
	return all
}
