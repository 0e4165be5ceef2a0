package etcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

func TestTLS(t *testing.T) {
	certs := provision.TLS(t)
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{TLS: certs})
	at := func(scheme string, params ...string) string {
		q := url.Values{"dial_timeout": {"2s"}}
		for i := 0; i < len(params); i += 2 {
			q.Set(params[i], params[i+1])
		}
		return scheme + "://" + s.Addr() + "/tls?" + q.Encode()
	}
	for _, u := range []string{
		at("etcds", "tls_ca", certs.CAFile), at("etcd", "tls", "true", "tls_ca", certs.CAFile),
		at("etcds", "tls_ca", certs.CAFile, "tls_cert", certs.ClientCertFile, "tls_key", certs.ClientKeyFile, "tls_server_name", "localhost"),
	} {
		c, err := lock.Open(t.Context(), u)
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		l, err := c.Mutex("k").Lock(t.Context())
		if err == nil {
			err = l.Unlock(t.Context())
		}
		if err != nil {
			t.Errorf("%s: %v", u, err)
		}
		_ = c.Close(context.Background())
	}
	for u, want := range map[string]string{
		at("etcds", "tls_ca", certs.OtherCAFile):                                 "certificate",
		at("etcds", "tls_ca", certs.CAFile, "tls_server_name", "elsewhere.test"): "elsewhere.test",
		at("etcd"): s.Addr(),
	} {
		if c, err := lock.Open(t.Context(), u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v, %v", u, want, c, err)
		}
	}
}

// TestClientCertificates uses a server that requires client certificates. Then, with
// authentication on, the common name of a certificate is the user.
func TestClientCertificates(t *testing.T) {
	certs := provision.TLS(t)
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{TLS: certs, Args: []string{
		"--client-cert-auth", "--trusted-ca-file", certs.CAFile,
	}})
	at := func(path string, params ...string) string {
		q := url.Values{"dial_timeout": {"2s"}, "tls_ca": {certs.CAFile}}
		for i := 0; i < len(params); i += 2 {
			q.Set(params[i], params[i+1])
		}
		return "etcds://" + s.Addr() + path + "?" + q.Encode()
	}
	with := []string{"tls_cert", certs.ClientCertFile, "tls_key", certs.ClientKeyFile}
	cycle := func(u string) error {
		c, err := lock.Open(t.Context(), u, lock.WithTTL(5*time.Second))
		if err != nil {
			return err
		}
		defer c.Close(context.Background())
		l, err := c.Mutex("k").Lock(t.Context())
		if err == nil {
			err = errors.Join(l.Check(t.Context()), l.Unlock(t.Context()))
		}
		return err
	}
	if err := cycle(at("/app", with...)); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := cycle(at("/app")); err == nil || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("without a certificate: %v", err)
	}
	own, err := tls.LoadX509KeyPair(certs.ClientCertFile, certs.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	secure := certs.Client()
	secure.Certificates = []tls.Certificate{own}
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + s.Addr()}, TLS: secure, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx, user := t.Context(), leaf.Subject.CommonName
	for _, do := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "root-secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error {
			_, err := admin.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true})
			return err
		},
		func() error { _, err := admin.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "locks", "app/", clientv3.GetPrefixRangeEnd("app/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserGrantRole(ctx, user, "locks"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cycle(at("/app", with...)); err != nil {
		t.Errorf("as the user of the certificate: %v", err)
	}
	if err := cycle(at("/else", with...)); err == nil || !strings.Contains(err.Error(), `permission denied for the keys under "else/"`) {
		t.Errorf("without permission: %v", err)
	}
}
