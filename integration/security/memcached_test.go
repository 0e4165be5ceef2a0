package security_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/interlock-go/lock/integration/provision"
)

func memcachedTarget(t *testing.T) target {
	certs := provision.TLS(t)
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("app:"+provision.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := provision.NewMemcached(t, provision.Options{
		TLS: certs, Username: "app", Password: provision.Secret,
		Args: []string{"--auth-file=" + users}, Files: []string{certs.CAFile, certs.CertFile, certs.KeyFile, users},
	})
	admin := must[*tls.Conn](t)(tls.Dial("tcp", s.Addr(), certs.Client()))
	t.Cleanup(func() { _ = admin.Close() })
	replies := bufio.NewScanner(admin)
	ask := func(request, last string) (lines []string) {
		t.Helper()
		if _, err := admin.Write([]byte(request + "\r\n")); err != nil {
			t.Fatal(err)
		}
		for replies.Scan() {
			if replies.Text() == last {
				return lines
			}
			lines = append(lines, replies.Text())
		}
		t.Fatalf("no %q from the server: %q, %v", last, lines, replies.Err())
		return nil
	}
	login := "app " + provision.Secret
	ask(fmt.Sprintf("set auth 0 0 %d\r\n%s", len(login), login), "STORED")
	ask("set bystander 0 0 5\r\nalive", "STORED")
	good := with(s.URL(), "tls_ca", certs.CAFile, "timeout", "10s")
	return target{
		url: good,
		refused: map[string]refusal{
			"another authority": {with(good, "tls_ca", certs.OtherCAFile), "certificate"},
			"another name":      {with(good, "tls_server_name", "elsewhere.test"), "elsewhere.test"},
			"no TLS":            {with(scheme(good, "memcached"), "tls_ca", "", "timeout", "1s"), s.Addr()},
			"a wrong password":  {as(good, "app", wrong), `does not accept the user "app"`},
			"no password":       {as(good, "", ""), "unauthenticated"},
			"no such user":      {as(good, "no-such-user", provision.Secret), `does not accept the user "no-such-user"`},
		},
		others: func(*testing.T) []string {
			return append(ask("get bystander", "END"), ask("get parameter", "END")...)
		},
		params: []string{"timeout", "margin"},
	}
}
