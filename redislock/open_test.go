package redislock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/redisurl"
)

func openError(t *testing.T, url string) error {
	t.Helper()
	u, err := backend.ParseURL(url)
	must(t, err)
	b, err := backend.Open(t.Context(), u)
	if err == nil {
		closeBackend(t, b.(*Backend))
		t.Errorf("%s was opened", url)
		return errors.New("none")
	}
	return err
}

func TestBadURLs(t *testing.T) {
	for url, want := range map[string]string{
		"redis:///0":                                  "one host",
		"redis://a,b":                                 "redis+cluster",
		"redis://h/x":                                 "database",
		"redis://h/-1":                                "database",
		"redis://h?prefix=a:b":                        "prefix",
		"redis://h?prefix=a%7Bb":                      "prefix",
		"redis://h?ttl2=1s":                           "accepted: dial_timeout, eviction, pool_size, prefix",
		"redis://h?dial_timeout=-1s":                  "dial_timeout",
		"redis://h?wait_replicas=-1":                  "wait_replicas",
		"redis://h?wait_replicas=1&wait_timeout=5s":   "wait_timeout",
		"redis://h?wait_replicas=1&wait_timeout=9us":  "wait_timeout",
		"redis://h?eviction=maybe":                    "refuse, accept",
		"redis://h?tls_ca=x":                          "rediss",
		"rediss://h?tls_ca=/does/not/exist":           "tls_ca",
		"rediss://h?tls_cert=/does/not/exist":         "tls_key",
		"rediss://h?tls_cert=/does/no&tls_key=/d/not": "tls_cert",
		"redis+sentinel://h":                          "master",
		"redis+sentinel:///m":                         "sentinel",
		"redis+cluster://h/3":                         "database",
		"redis+cluster:///":                           "host",
	} {
		if err := openError(t, url); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
	}
}

func TestOpenFails(t *testing.T) {
	// absent, named and bounded
	addr := fmt.Sprintf("127.0.0.1:%d", freePort())
	for _, scheme := range []string{"redis://%s", "redis+sentinel://%s/m", "redis+cluster://%s", "rediss://%s"} {
		start := time.Now()
		err := openError(t, fmt.Sprintf(scheme, addr))
		if !strings.Contains(err.Error(), addr) || time.Since(start) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	}
	// one that never answers
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	start := time.Now()
	err = openError(t, "redis://"+l.Addr().String()+"?read_timeout=200ms&dial_timeout=200ms")
	if !strings.Contains(err.Error(), l.Addr().String()) || time.Since(start) > 3*time.Second || isUncertain(err) || strings.Contains(err.Error(), "outcome unknown") {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	// wrong password
	auth := private(t, "--requirepass", "right-secret")
	for url, want := range map[string]string{
		"redis://:wrong-secret@" + auth: "WRONGPASS",
		"redis://" + auth:               "NOAUTH",
	} {
		err := openError(t, url)
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || isUncertain(err) {
			t.Errorf("%v", err)
		}
	}
	must(t, take(t, openURL(t, "redis://:right-secret@"+auth+"/3"), request("k")).Release(t.Context()))

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	u, err := backend.ParseURL("redis://" + l.Addr().String())
	must(t, err)
	if _, err := Open(ctx, u); !errors.Is(err, context.Canceled) || isUncertain(err) || strings.Contains(err.Error(), "outcome unknown") {
		t.Errorf("cancelled: %v", err)
	}
	u.Path = "/cret@host/0" // of a password with a slash
	if _, err := redisurl.Parse(u); !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "cret") || !strings.Contains(err.Error(), "percent-encoded") {
		t.Errorf("with a path that is none: %v", err)
	}
	slow := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 500 * time.Millisecond})
	defer slow.Close()
	if _, err := New(slow, WithWaitReplicas(1, time.Second)); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("waiting longer than the client reads: %v", err)
	}

	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	if _, err := New(ring); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("ring: %v", err)
	}
	for _, o := range []Option{WithPrefix("a:b"), WithWaitReplicas(-1, time.Second), WithWaitReplicas(1, 0)} {
		if _, err := New(client(t, addr), o); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("option: %v", err)
		}
	}
}

func TestReadOnlyReplica(t *testing.T) {
	master := private(t)
	host, port, _ := strings.Cut(master, ":")
	replica := private(t, "--replicaof", host+" "+port)
	b := openURL(t, "redis://"+replica)
	_, err := b.TryAcquire(t.Context(), request("k"))
	if err == nil || !strings.Contains(err.Error(), "READONLY") || isUncertain(err) {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"redis.test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	crt, pk := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	must(t, os.WriteFile(crt, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(pk, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	port := freePort()
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	_, stop, err := start(0, "--tls-port", fmt.Sprint(port), "--tls-cert-file", crt, "--tls-key-file", pk, "--tls-ca-cert-file", crt)
	if err != nil {
		missing(t, err)
	}
	defer stop()
	q := "?tls_ca=" + crt + "&tls_cert=" + crt + "&tls_key=" + pk
	b := openURL(t, "rediss://"+addr+q+"&tls_server_name=redis.test")
	must(t, take(t, b, request("k")).Release(t.Context()))
	for _, q := range []string{q, q + "&tls_server_name=other.test", "?tls_server_name=redis.test"} {
		if err := openError(t, "rediss://"+addr+q); !strings.Contains(err.Error(), "x509") && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// A URL may have the path of a Unix socket, with the database in a parameter.
func TestUnixSocket(t *testing.T) {
	path := t.TempDir() + "/redis.sock"
	addr := private(t, "--unixsocket", path, "--requirepass", "pw")
	b := openURL(t, "redis://:pw@"+path+"?db=1")
	g := take(t, b, request("k"))
	ch := enqueue(t.Context(), t, b, request("k"))
	tcp := redis.NewClient(&redis.Options{Addr: addr, Password: "pw", DB: 1})
	defer tcp.Close()
	if n := tcp.Exists(t.Context(), b.svc.proc.Keys("k").Lock).Val(); n != 1 {
		t.Error("the lock is not in database 1")
	}
	must(t, g.Release(t.Context()))
	must(t, get(t, ch).Release(t.Context()))
	for url, want := range map[string]string{
		"redis://" + path + "x":               path + "x",
		"redis:///0":                          "one host",
		"redis://" + path + "?db=-1":          "db",
		"redis://localhost?db=1":              "db",
		"rediss://" + path:                    "one host",
		"redis+cluster://" + path:             "redis+cluster://host",
		"redis://" + path + "?password=false": "password",
	} {
		if err := openError(t, url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
