package natslock

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/interlock-go/lock/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openURL(ctx context.Context, rawURL string) (backend.Backend, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return backend.Open(ctx, u)
}

func TestURLErrors(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(secret, []byte("SUsecret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"nats:///locks":                        "URL hosts",
		"nats://h?timeout=0":                   "timeout",
		"nats://h?timeout=soon":                "timeout",
		"nats://h?margin=1m":                   "unknown",
		"nats://h?max_bytes=1000":              "max_bytes",
		"nats://h?domain=a.b":                  "domain",
		"nats://h?replicas=0":                  "replicas",
		"nats://h?replicas=6":                  "replicas",
		"nats://h?bucket=x":                    "unknown",
		"nats://h/a.b":                         "bucket",
		"nats://h/a/b":                         "bucket",
		"nats://h/" + strings.Repeat("x", 65):  "bucket",
		"nats://h?tls_ca=x":                    "natss:// or tls=true",
		"natss://h?tls=false":                  "parameter tls",
		"nats://user:@h":                       "user and password",
		"nats://:secret@h":                     "user and password",
		"nats://h?creds=/no/such/file":         "parameter creds",
		"nats://h?nkey=/no/such/file":          "parameter nkey",
		"nats://h?nkey=" + secret:              "parameter nkey",
		"nats://user:secret@h?nkey=" + secret:  "parameter nkey",
		"nats://h?creds=" + secret:             "parameter creds",
		"nats://user:secret@h?creds=" + secret: "parameter creds",
		"nats://user:secret@h?timeout=secret!": "timeout",
	} {
		_, err := openURL(t.Context(), url)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want ErrInvalid with %q, got %v", url, want, err)
		}
		if err != nil && (strings.Contains(err.Error(), "SUsecret") || strings.Contains(err.Error(), ":secret@")) {
			t.Errorf("%s: the error has the secret: %v", url, err)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	conn := new(nats.Conn)
	for want, opt := range map[string]Option{"timeout": WithTimeout(0), "max_bytes": WithMaxBytes(-1), "domain": WithDomain("a b"), "replicas": WithReplicas(9)} {
		if _, err := New(t.Context(), conn, DefaultBucket, opt); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrInvalid with %q, got %v", want, err)
		}
	}
	if _, err := New(t.Context(), nil, DefaultBucket); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("without a connection: %v", err)
	}
	if _, err := New(t.Context(), conn, "a.b"); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a bad bucket: %v", err)
	}
}

func TestAbsentServer(t *testing.T) {
	for _, user := range []string{"u:secret", "secret"} { // a token
		_, err := openURL(t.Context(), "nats://"+user+"@127.0.0.1:1")
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "secret") || backend.OutcomeUnknown(err) {
			t.Errorf("want an error of a request that was not executed, with the address and without the secret, got %v", err)
		}
	}
}

// Opening ends with its context while a server accepts connections and does not answer, and with the timeout.
func TestSilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := openURL(ctx, "nats://"+silent.Addr().String()+"?timeout=500ms"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the end of the context, got %v", err)
	}
	_, err = openURL(t.Context(), "nats://user:secret@"+silent.Addr().String()+"?timeout=100ms")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("want an error without the password, got %v", err)
	}
}

func TestMaxTTL(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0:                         backend.MaxTTL, // records have no maximum age
		time.Minute:               54 * time.Second,
		math.MaxInt64:             backend.MaxTTL,
		10 * 365 * 24 * time.Hour: backend.MaxTTL,
	} {
		if got := maxTTL(age); got != want {
			t.Errorf("maximum age %v: want TTLs up to %v, got %v", age, want, got)
		}
	}
}
