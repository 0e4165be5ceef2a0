package redislock

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+sentinel", "redis+cluster"} {
		backend.Register(scheme, Open)
	}
}

// settings are what a URL says.
type settings struct {
	options
	scheme           string
	addrs            []string
	master           string
	db               int
	user, password   string
	sentinelUser     string
	sentinelPassword string
	dial, read       time.Duration
	pool             int
	tls              *tls.Config
}

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	client := s.client()
	ctx, cancel := context.WithTimeout(ctx, s.dial+s.read+s.openTimeout)
	defer cancel()
	b, err := open(ctx, client, s.options)
	if err != nil {
		_ = client.Close() // err is the one that matters
		return nil, fmt.Errorf("%s at %s: %w", u.Scheme, strings.Join(s.addrs, ","), err)
	}
	b.own = true
	if s.scheme == "redis+sentinel" {
		b.followSentinels(s.sentinels(), s.master)
	}
	return b, nil
}

func parse(u *backend.URL) (settings, error) {
	p := u.Params
	s := settings{options: defaults(), scheme: u.Scheme}
	s.prefix = p.String("prefix", DefaultPrefix)
	s.dial = p.Duration("dial_timeout", 3*time.Second)
	s.read = p.Duration("read_timeout", 3*time.Second)
	s.pool = p.Int("pool_size", 0, 1, 100000)
	s.replicas = p.Int("wait_replicas", 0, 0, maxReplicas)
	s.replicaTimeout = p.Duration("wait_timeout", time.Second)
	s.allowEviction = p.Enum("eviction", "refuse", "refuse", "accept") == "accept"
	s.openTimeout = s.dial + s.read
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
	if err := p.Err(); err != nil {
		return s, err
	}
	if err := checkPrefix(s.prefix); err != nil {
		return s, err
	}
	if s.replicas > 0 && (s.replicaTimeout < time.Millisecond || s.replicaTimeout >= s.read) {
		return s, backend.Invalid("URL parameter wait_timeout", s.replicaTimeout, fmt.Sprintf("1ms or more, and less than read_timeout, %v", s.read))
	}
	if err := s.parseAddress(u, port); err != nil {
		return s, err
	}
	var err error
	s.tls, err = files.Config(secure, "rediss://, or tls=true with redis+sentinel, redis+cluster and redlock")
	return s, err
}

func (s *settings) parseAddress(u *backend.URL, port string) error {
	if u.User != nil {
		s.user = u.User.Username()
		s.password, _ = u.User.Password()
	}
	for _, h := range u.Hosts {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		s.addrs = append(s.addrs, h)
	}
	if strings.Contains(u.Path, "@") { // what stands before it may be a password
		return fmt.Errorf("%w URL: malformed; in a user name or password every '/', '?', '#' and '@' must be percent-encoded", backend.ErrInvalid)
	}
	db := strings.TrimPrefix(u.Path, "/")
	switch u.Scheme {
	case "redis+sentinel":
		s.master, db, _ = strings.Cut(db, "/")
		if s.master == "" || len(s.addrs) == 0 {
			return backend.Invalid("URL of scheme redis+sentinel", u.Path, "redis+sentinel://sentinel[,sentinel...]/master[/db]")
		}
	case "redis+cluster":
		if len(s.addrs) == 0 || (db != "" && db != "0") {
			return backend.Invalid("URL of scheme redis+cluster", u.Path, "redis+cluster://host[,host...], and no database but 0")
		}
	case "redlock":
		if len(s.addrs) < minNodes || len(slices.Compact(slices.Sorted(slices.Values(s.addrs)))) < len(s.addrs) {
			return backend.Invalid("URL hosts", strings.Join(u.Hosts, ","), "redlock://host,host,host[,host...][/db] with three different hosts or more")
		}
	default:
		if len(s.addrs) != 1 {
			return backend.Invalid("URL hosts", strings.Join(u.Hosts, ","), u.Scheme+"://host[:port][/db] with one host; see redis+sentinel and redis+cluster for more")
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

// client makes the client: it gives up a dead connection within seconds, dials
// once, and sends nothing that the protocol does not need.
func (s *settings) client() redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: s.addrs, DB: s.db, Username: s.user, Password: s.password, MasterName: s.master,
		SentinelUsername: s.sentinelUser, SentinelPassword: s.sentinelPassword,
		DialTimeout: s.dial, ReadTimeout: s.read, WriteTimeout: s.read, PoolSize: s.pool,
		DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		TLSConfig:                s.tls,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	o.Dialer = s.dialer()
	switch s.scheme {
	case "redis+sentinel":
		return redis.NewFailoverClient(o.Failover())
	case "redis+cluster":
		c := o.Cluster()
		c.MaxRedirects, c.DisableRoutingPolicies = 3, true
		return redis.NewClusterClient(c)
	}
	return redis.NewClient(o.Simple())
}

func (s *settings) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	// without a command a dead connection is noticed by the kernel only
	d := &net.Dialer{Timeout: s.dial, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	if s.tls != nil {
		return (&tls.Dialer{NetDialer: d, Config: s.tls}).DialContext
	}
	return d.DialContext
}

// sentinels are clients' options for each of them.
func (s *settings) sentinels() (all []*redis.Options) {
	for _, addr := range s.addrs {
		all = append(all, &redis.Options{
			Addr: addr, Username: s.sentinelUser, Password: s.sentinelPassword, Dialer: s.dialer(),
			DialTimeout: s.dial, ReadTimeout: s.read, WriteTimeout: s.read, PoolSize: 1,
			DialerRetries: 1, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	return all
}
