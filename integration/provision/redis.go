package provision

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// go-redis prints each refused connection, and tests that end servers cause thousands: what failed would be lost among
// them. A TestMain that wants the lines sets a logger of its own.
func init() { redis.SetLogger(quiet{}) }

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// The flavours of Redis that the tests know.
const (
	Redis7  = "redis-7"
	Redis8  = "redis-8"
	Valkey9 = "valkey-9"
	// AnyRedis is the current version or whatever binary is on the PATH, for tests to which the version does not matter.
	AnyRedis = "redis"
)

// RedisFlavours returns the flavours that every test against Redis should run with.
func RedisFlavours() []string { return []string{Redis7, Redis8, Valkey9} }

var redisKinds = map[string]kind{
	Redis7: redisKind(kind{
		flavour: Redis7, extra: true, major: "7", official: "redis:7", binaries: []string{"redis-server"},
	}),
	Redis8: redisKind(kind{
		flavour: Redis8, major: "8", official: "redis:8", built: "interlock-test/redis:8", binaries: []string{"redis-server"},
	}),
	Valkey9: redisKind(kind{
		flavour: Valkey9, extra: true, major: "9", official: "valkey/valkey:9", built: "interlock-test/valkey:9", binaries: []string{"valkey-server"},
	}),
	AnyRedis: redisKind(kind{
		flavour: AnyRedis, official: "redis:8", built: "interlock-test/redis:8", binaries: []string{"redis-server", "valkey-server"},
	}),
}

func redisKind(k kind) kind {
	k.service = "redis"
	k.port = 6379
	k.args, k.url, k.probe = redisArgs, redisURL, redisProbe
	k.binaryVersion = func(output string) string { return firstMatch(redisBinaryVersion, output) }
	return k
}

func kindOfRedis(t testing.TB, flavour string) kind {
	t.Helper()
	k, ok := redisKinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want %q, %q, %q or %q", flavour, Redis7, Redis8, Valkey9, AnyRedis)
	}
	return k
}

// shared are the servers that tests of this process share, by flavour.
var shared sync.Map // flavour → func() (*Server, error)

// Redis returns the server of a flavour that all tests of this process share; the first call starts it.
// A test keeps to keys of its own there. Without such a server the test is skipped, or fails where it is required.
func Redis(t testing.TB, flavour string) *Server {
	t.Helper()
	if !inMain.Load() {
		t.Fatal("provision: a shared server needs provision.Main in TestMain, which ends it")
	}
	k := kindOfRedis(t, flavour)
	k.leaveOut(t)
	once, _ := shared.LoadOrStore(flavour, sync.OnceValues(func() (*Server, error) { return startShared(k) }))
	s, err := once.(func() (*Server, error))()
	switch {
	case errors.As(err, &badURL{}):
		record(k.flavour, "", "not tested: "+err.Error())
		t.Fatal(err)
	case err != nil:
		unavailable(t, k, err)
	}
	record(k.flavour, s.Version, s.Source)
	return s
}

// badURL is the error of a URL from the environment whose server does not answer. It is never a reason to skip.
type badURL struct{ error }

func startShared(k kind) (*Server, error) {
	variable := k.variable("URL")
	given := os.Getenv(variable)
	if given == "" {
		s, err := start(k, Options{})
		if err != nil {
			return nil, errors.Join(errors.New(variable+" is not set"), err)
		}
		s.shared = true
		return s, nil
	}
	o, err := redis.ParseURL(given)
	if err != nil {
		// The error of url.Parse quotes the URL with its password.
		return nil, badURL{fmt.Errorf("%s is not a Redis URL, want redis[s]://[user:password@]host:port/db", variable)}
	}
	s := &Server{Flavour: k.flavour, Source: variable, kind: k, addr: o.Addr, given: given}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		return nil, badURL{fmt.Errorf("%s: %w", variable, err)}
	}
	if !k.serves(s.Version) {
		return nil, badURL{fmt.Errorf("%s: %s is version %s, want %s", variable, o.Addr, s.Version, k.major)}
	}
	return s, nil
}

// NewRedis starts a server for this test alone, which may stop, pause, kill and restart it.
// It ends with the test. Servers given by URL do not serve here.
func NewRedis(t testing.TB, flavour string, o Options) *Server {
	t.Helper()
	return newPrivate(t, kindOfRedis(t, flavour), o)
}

func redisArgs(host string, port int, dir string, o Options) []string {
	args := []string{"--bind", host, "--protected-mode", "no", "--save", "", "--appendonly", "no"}
	if dir != "" {
		args = append(args, "--dir", dir)
	}
	if o.TLS != nil {
		args = append(args, "--port", "0", "--tls-port", strconv.Itoa(port), "--tls-ca-cert-file", o.TLS.CAFile,
			"--tls-cert-file", o.TLS.CertFile, "--tls-key-file", o.TLS.KeyFile, "--tls-auth-clients", "optional")
	} else {
		args = append(args, "--port", strconv.Itoa(port))
	}
	if o.Password != "" && o.Username == "" {
		args = append(args, "--requirepass", o.Password)
	}
	return args
}

func redisURL(addr string, o Options) string {
	u := url.URL{Scheme: "redis", Host: addr, Path: "/0"}
	if o.TLS != nil {
		u.Scheme = "rediss"
	}
	if o.Password != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	return u.String()
}

var (
	redisVersion       = regexp.MustCompile(`(?m)^redis_version:(\S+)`)
	valkeyVersion      = regexp.MustCompile(`(?m)^valkey_version:(\S+)`)
	redisBinaryVersion = regexp.MustCompile(`\bv=(\S+)`)
)

func firstMatch(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

func redisProbe(ctx context.Context, server string, o Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := redisClient(ctx, server, o)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return "", err
	}
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	// Valkey calls itself Redis 7.2 too, for old clients.
	for _, re := range []*regexp.Regexp{valkeyVersion, redisVersion} {
		if version := firstMatch(re, info); version != "" {
			return version, nil
		}
	}
	return "", fmt.Errorf("INFO server names no version: %q", strings.TrimSpace(info))
}

// redisClient makes a client over one connection, which it dials itself, so that a server that is still starting
// refuses at once.
func redisClient(ctx context.Context, server string, o Options) (*redis.Client, error) {
	c, err := redis.ParseURL(server)
	if err != nil {
		return nil, final{err}
	}
	var conn net.Conn
	if c.TLSConfig == nil {
		conn, err = new(net.Dialer).DialContext(ctx, c.Network, c.Addr)
	} else {
		if o.TLS != nil {
			c.TLSConfig = o.TLS.Client()
		}
		conn, err = (&tls.Dialer{Config: c.TLSConfig}).DialContext(ctx, c.Network, c.Addr)
	}
	if err != nil {
		return nil, err
	}
	c.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if conn == nil {
			return nil, errors.New("the connection was lost")
		}
		first := conn
		conn = nil
		return first, nil
	}
	c.MaxRetries, c.PoolSize, c.DialerRetries = -1, 1, 1
	c.ReadTimeout = time.Second
	c.ContextTimeoutEnabled = true
	return redis.NewClient(c), nil
}
