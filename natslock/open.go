package natslock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

func init() {
	backend.Register("nats", Open)
	backend.Register("natss", Open)
}

// DefaultBucket is the bucket of a URL without one.
const DefaultBucket = "locks"

const (
	defaultPort = "4222"
	maxReplicas = 5
	// leastMaxBytes has room for some thousand locks.
	leastMaxBytes = 1 << 20
)

type options struct {
	timeout  time.Duration
	replicas int
	maxBytes int64
	domain   string
}

func defaults() options {
	return options{timeout: 2 * time.Second, replicas: 1}
}

// Option changes what New does.
type Option func(*options) error

// WithTimeout limits each request, 10 ms to 1 min; the default is 2 s.
func WithTimeout(d time.Duration) Option {
	return func(o *options) error { o.timeout = d; return o.check() }
}

// WithReplicas sets the number of servers that store a bucket that is created, 1 to 5; the default is 1.
func WithReplicas(n int) Option {
	return func(o *options) error { o.replicas = n; return o.check() }
}

// WithDomain sets the JetStream domain of the bucket. The default is that of the server to which the client connects.
func WithDomain(domain string) Option {
	return func(o *options) error { o.domain = domain; return o.check() }
}

// WithMaxBytes sets the greatest size of a bucket that is created, from 1 MiB, for an account that demands one, and accepts a
// bucket that has at least this size. While a bucket is full, no lock is acquired, renewed or released. Zero is no limit, the
// default.
func WithMaxBytes(n int64) Option {
	return func(o *options) error { o.maxBytes = n; return o.check() }
}

func (o *options) check() error {
	switch {
	case o.timeout < 10*time.Millisecond || o.timeout > time.Minute:
		return backend.Invalid("timeout", o.timeout, "10ms to 1m")
	case o.maxBytes != 0 && o.maxBytes < leastMaxBytes:
		return backend.Invalid("max_bytes", o.maxBytes, fmt.Sprintf("0 for no limit, or at least %d", leastMaxBytes))
	case o.domain != "" && !validDomain.MatchString(o.domain):
		return backend.Invalid("domain", o.domain, `1 to 64 letters, digits, "-" and "_"`)
	case o.replicas < 1 || o.replicas > maxReplicas:
		return backend.Invalid("replicas", o.replicas, fmt.Sprintf("1 to %d", maxReplicas))
	}
	return nil
}

var (
	validBucket = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	validDomain = validBucket
)

func checkBucket(bucket string) error {
	if !validBucket.MatchString(bucket) {
		return backend.Invalid("bucket", bucket, `1 to 64 letters, digits, "-" and "_"`)
	}
	return nil
}

// New returns a backend that keeps locks in a bucket, which it creates if it is absent. It uses conn
// and never closes it. Open sets what a connection for locks needs: see its options.
// Give conn [nats.MaxReconnects](-1), so that it survives long outages, and a [nats.PingInterval] of seconds: the driver
// does not reconnect it when it has died without a sign.
func New(ctx context.Context, conn *nats.Conn, bucket string, opts ...Option) (*Backend, error) {
	if conn == nil {
		return nil, backend.Invalid("conn", "nil", "a *nats.Conn")
	}
	if err := checkBucket(bucket); err != nil {
		return nil, err
	}
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	return open(ctx, conn, bucket, o)
}

// Open opens a backend from a URL; see the package's documentation for its form.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	bucket, o, config, err := parse(u)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, config)
	if err != nil {
		return nil, backend.NotExecuted(fmt.Errorf("nats at %s: %w", strings.Join(u.Hosts, ","), err))
	}
	b, err := open(ctx, conn, bucket, o)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("nats at %s: %w", strings.Join(u.Hosts, ","), err)
	}
	b.ownsConn = true
	return b, nil
}

// connect returns when ctx ends: the client library takes no context.
func connect(ctx context.Context, config nats.Options) (*nats.Conn, error) {
	type result struct {
		conn *nats.Conn
		err  error
	}
	connected := make(chan result, 1)
	go func() {
		conn, err := config.Connect()
		connected <- result{conn, err}
	}()
	select {
	case r := <-connected:
		return r.conn, r.err
	case <-ctx.Done():
		go func() { // its timeout bounds it
			if r := <-connected; r.err == nil {
				r.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func parse(u *backend.URL) (bucket string, o options, config nats.Options, err error) {
	o, p := defaults(), u.Params
	o.timeout = p.Duration("timeout", o.timeout)
	o.replicas = p.Int("replicas", o.replicas, 1, maxReplicas)
	o.maxBytes = int64(p.Int("max_bytes", 0, 0, math.MaxInt))
	o.domain = p.String("domain", "")
	creds, seed := p.String("creds", ""), p.String("nkey", "")
	secure := p.Bool("tls", u.Scheme == "natss")
	files := tlsurl.Read(p)
	if err = p.Err(); err == nil {
		err = o.check()
	}
	if err != nil {
		return "", o, config, err
	}
	if u.Scheme == "natss" && !secure {
		return "", o, config, backend.Invalid("URL parameter tls", "false", "true, or absent, with natss://")
	}
	if bucket = strings.TrimPrefix(u.Path, "/"); bucket == "" {
		bucket = DefaultBucket
	}
	if err = checkBucket(bucket); err != nil {
		return "", o, config, err
	}
	if len(u.Hosts) == 0 {
		return "", o, config, backend.Invalid("URL hosts", "", u.Scheme+"://host[:port][,host[:port]...][/bucket]")
	}
	config = nats.GetDefaultOptions()
	for _, h := range u.Hosts {
		config.Servers = append(config.Servers, "nats://"+backend.HostPort(h, defaultPort))
	}
	config.Name = "interlock"
	config.Timeout = o.timeout
	config.MaxReconnect = -1
	config.ReconnectWait, config.ReconnectJitter, config.ReconnectJitterTLS = 50*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	config.ReconnectBufSize = -1 // a request fails at once while there is no connection
	config.PingInterval, config.MaxPingsOut = 5*time.Second, 2
	config.IgnoreAuthErrorAbort = true                                   // a server that starts may refuse everything
	config.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // requests return their errors
	if config.TLSConfig, err = files.Config(secure, "natss:// or tls=true"); err != nil {
		return "", o, config, err
	}
	config.Secure = config.TLSConfig != nil
	return bucket, o, config, authenticate(&config, u, creds, seed)
}

// authenticate sets how the client proves who it is: by one way at most.
func authenticate(config *nats.Options, u *backend.URL, creds, seed string) error {
	ways := 0
	if u.User != nil {
		ways++
		password, ok := u.User.Password()
		if config.User, config.Password = u.User.Username(), password; !ok {
			config.User, config.Token = "", u.User.Username()
		}
		if ok && (config.User == "" || password == "") {
			return fmt.Errorf("%w URL user and password: want both, or a token alone", backend.ErrInvalid)
		}
	}
	if creds != "" {
		ways++
		err := nats.UserCredentials(creds)(config)
		if err == nil {
			_, err = config.UserJWT() // read here, so that a bad file is found at once
		}
		if err == nil {
			_, err = config.SignatureCB([]byte("a nonce"))
		}
		if err != nil {
			return badFile("creds", creds, err)
		}
	}
	if seed != "" {
		ways++
		use, err := nats.NkeyOptionFromSeed(seed)
		if err == nil {
			err = use(config)
		}
		if err != nil {
			return badFile("nkey", seed, err)
		}
	}
	if ways > 1 {
		return fmt.Errorf("%w URL: want one of a user or token, creds and nkey", backend.ErrInvalid)
	}
	return nil
}

// badFile quotes the file name, which fs.PathError does not.
func badFile(param, name string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("%w URL parameter %s %q: %w", backend.ErrInvalid, param, name, err)
}
