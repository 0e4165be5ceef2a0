package memcachelock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
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
	for url, want := range map[string]string{
		"memcached:///":                             "URL hosts",
		"memcached:lock":                            "URL hosts",
		"memcacheds:///run/memcached.sock":          "URL hosts",
		"memcached:///run/memcached.sock?prefix=a:": "prefix",
		"memcached://h?connections=1":               "connections",
		"memcached://h?timeout=0":                   "timeout",
		"memcached://h?timeout=soon":                "timeout",
		"memcached://h?margin=999ms":                "margin",
		"memcached://h?margin=25h":                  "margin",
		"memcached://h?prefix=x":                    "unknown",
		"memcached://h/a:b":                         "prefix",
		"memcached://h/a%20b":                       "prefix",
		"memcached://h/" + strings.Repeat("x", 65):  "prefix",
		"memcached://h?tls_ca=x":                    "need memcacheds://",
		"memcacheds://h?tls=false":                  "parameter tls",
		"memcached://user@h":                        "user and password",
		"memcached://:secret@h":                     "user and password",
		"memcached://user:sec%20ret@h":              "user and password",
		"memcached://user:secret@h?timeout=secret!": "timeout",
	} {
		_, err := openURL(t.Context(), url)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want ErrInvalid with %q, got %v", url, want, err)
		}
		if err != nil && (strings.Contains(err.Error(), "sec ret") || strings.Contains(err.Error(), ":secret@")) {
			t.Errorf("%s: the error has the password: %v", url, err)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	client := memcache.New("127.0.0.1:1")
	for want, opt := range map[string]Option{"prefix": WithPrefix("a:b"), "margin": WithMargin(time.Millisecond), "connections": WithConnections(1)} {
		if _, err := New(client, opt); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want ErrInvalid with %q, got %v", want, err)
		}
	}
	if _, err := New(nil); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("without a client: %v", err)
	}
}

func TestAbsentServer(t *testing.T) {
	_, err := openURL(t.Context(), "memcached://u:secret@127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "secret") || backend.OutcomeUnknown(err) {
		t.Errorf("want an error of a request that was not executed, with the address and without the password, got %v", err)
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
	if _, err := openURL(ctx, "memcached://"+silent.Addr().String()+"?timeout=500ms"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want the end of the context, got %v", err)
	}
	_, err = openURL(t.Context(), "memcached://user:secret@"+silent.Addr().String()+"?timeout=100ms")
	if err == nil || strings.Contains(err.Error(), "secret") || backend.OutcomeUnknown(err) {
		t.Errorf("want an error of a request that was not sent, without the password, got %v", err)
	}
	if _, err = openURL(t.Context(), "memcached://"+silent.Addr().String()+"?timeout=100ms"); err == nil || !backend.OutcomeUnknown(err) {
		t.Errorf("want an error of a request that may have been executed, got %v", err)
	}
}
