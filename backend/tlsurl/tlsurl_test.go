package tlsurl_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

// pair writes a self-signed certificate and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", kder)
}

func TestConfig(t *testing.T) {
	cert, key := pair(t)
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("a secret that is no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name, query string
		secure      bool
		wantErr     string // "" is success
	}{
		{"plain", "", false, ""},
		{"secure", "", true, ""},
		{"all", "tls_ca=" + cert + "&tls_cert=" + cert + "&tls_key=" + key + "&tls_server_name=db", true, ""},
		{"not secure", "tls_server_name=db", false, "need tls=true"},
		{"no CA file", "tls_ca=" + missing, true, "tls_ca"},
		{"CA is no PEM", "tls_ca=" + junk, true, "PEM certificates"},
		{"no key", "tls_cert=" + cert, true, "need each other"},
		{"no certificate", "tls_key=" + key, true, "need each other"},
		{"no key file", "tls_cert=" + cert + "&tls_key=" + missing, true, "tls_key"},
		{"key is no PEM", "tls_cert=" + cert + "&tls_key=" + junk, true, "PEM files"},
		{"a server name that would forge a line of a log", "tls_server_name=a%0Alevel%3DERROR", true, `tls_server_name "a\nlevel`},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := url.ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			p := backend.NewParams(q)
			files := tlsurl.Read(p)
			if err := p.Err(); err != nil {
				t.Fatalf("the parameters must be known: %v", err)
			}
			got, err := files.Config(c.secure, "tls=true")
			if c.wantErr != "" {
				if got != nil || !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("want ErrInvalid with %q and no configuration, got %v, %v", c.wantErr, got, err)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("the error quotes a file: %v", err)
				}
				return
			}
			if err != nil || (got != nil) != c.secure {
				t.Fatalf("want a configuration: %v; got %v, %v", c.secure, got, err)
			}
			if strings.Contains(c.query, "tls_cert") && (len(got.Certificates) != 1 || got.RootCAs == nil || got.ServerName != "db") {
				t.Errorf("want certificate, roots and name of the parameters, got %+v", got)
			}
		})
	}
}
