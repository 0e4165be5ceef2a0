package provision

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The flavours of etcd that the tests know.
const (
	Etcd35 = "etcd-3-5"
	Etcd37 = "etcd-3-7"
	// AnyEtcd is whatever image or binary there is, for tests to which the version does not matter.
	AnyEtcd = "etcd"

	etcdProxy = "etcd-grpc-proxy"
)

// EtcdFlavours returns the flavours that every test against etcd should run with.
func EtcdFlavours() []string { return []string{Etcd35, Etcd37} }

var etcdKinds = map[string]kind{
	Etcd35: etcdKind(kind{
		flavour: Etcd35, extra: true, major: "3.5", built: "interlock-test/etcd:3.5",
	}),
	Etcd37:  etcdKind(kind{flavour: Etcd37, major: "3.7", built: "interlock-test/etcd:3.7"}),
	AnyEtcd: etcdKind(kind{flavour: AnyEtcd, built: "interlock-test/etcd:3.7"}),
}

func etcdKind(k kind) kind {
	k.service = "etcd"
	k.port = 2379
	k.binaries = []string{"etcd"}
	if name := builtBinary("etcd"); name != "" {
		k.binaries = append(k.binaries, name)
	}
	k.args, k.url, k.probe = etcdArgs, etcdURL, etcdProbe
	k.binaryVersion = func(output string) string { return firstMatch(etcdBinaryVersion, output) }
	return k
}

// builtBinary returns the name of a binary that hack/setup.sh builds, in .bin beside go.work.
func builtBinary(name string) string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, ".bin", name)
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// NewEtcd starts a server for this test alone, which may stop, pause, kill and restart it; its data survives that.
func NewEtcd(t testing.TB, flavour string, o Options) *Server {
	t.Helper()
	k, ok := etcdKinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want %q, %q or %q", flavour, Etcd35, Etcd37, AnyEtcd)
	}
	return newPrivate(t, k, o)
}

// NewEtcdProxy starts a gRPC proxy of etcd in front of s. It is a process, and ends with the test.
func NewEtcdProxy(t testing.TB, s *Server) *Server {
	t.Helper()
	k := etcdKinds[AnyEtcd]
	k.flavour, k.built = etcdProxy, ""
	k.args = func(host string, port int, dir string, _ Options) []string {
		listen := net.JoinHostPort(host, strconv.Itoa(port))
		return []string{"grpc-proxy", "start", "--endpoints", s.Addr(), "--listen-addr", listen,
			"--advertise-client-url", listen, "--data-dir", filepath.Join(dir, "data")}
	}
	k.probe = func(ctx context.Context, server string, _ Options) (version string, err error) {
		p := Server{addr: strings.TrimPrefix(server, "etcd://")}
		err = p.etcd(ctx, func(ctx context.Context, e *clientv3.Client) error {
			r, err := e.Status(ctx, "http://"+p.addr)
			if err == nil {
				version = r.Version
			}
			return err
		})
		return version, err
	}
	return newPrivate(t, k, Options{})
}

func etcdArgs(host string, port int, dir string, o Options) []string {
	scheme := "http"
	var args []string
	if dir == "" { // in a container, whose image starts nothing by itself
		args, dir = []string{"etcd"}, "/interlock"
	}
	if o.TLS != nil {
		scheme = "https"
		args = append(args, "--cert-file", o.TLS.CertFile, "--key-file", o.TLS.KeyFile)
	}
	listen := scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
	args = append(args, "--listen-client-urls", listen, "--advertise-client-urls", listen,
		"--data-dir", filepath.Join(dir, "data"), "--logger", "zap", "--log-level", "warn", "--unsafe-no-fsync")
	if !o.Binary { // alone
		args = append(args, "--listen-peer-urls", "http://127.0.0.1:0")
	}
	return args
}

func etcdURL(addr string, o Options) string {
	u := url.URL{Scheme: "etcd", Host: addr}
	if o.TLS != nil {
		u.Scheme = "etcds"
	}
	if o.Password != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	return u.String()
}

var etcdBinaryVersion = regexp.MustCompile(`etcd Version: (\S+)`)

// etcdProbe succeeds when the server has a leader and serves.
func etcdProbe(ctx context.Context, server string, o Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	u, err := url.Parse(server)
	if err != nil {
		return "", final{err}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	base := "http://" + u.Host
	if o.TLS != nil {
		transport.TLSClientConfig, base = o.TLS.Client(), "https://"+u.Host
		own, err := tls.LoadX509KeyPair(o.TLS.ClientCertFile, o.TLS.ClientKeyFile)
		if err != nil {
			return "", final{err}
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{own} // where the server asks for one
	}
	get := func(path string, into any) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return final{err}
		}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, res.Status)
		}
		return json.NewDecoder(res.Body).Decode(into)
	}
	var health struct{ Health string }
	if err := get("/health", &health); err != nil {
		return "", err
	}
	if health.Health != "true" {
		return "", fmt.Errorf("health: %s", health.Health)
	}
	var version struct {
		Server string `json:"etcdserver"`
	}
	err = get("/version", &version)
	return version.Server, err
}
