package mysql_test

import (
	"testing"

	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	for _, flavour := range provision.MySQLFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			certs := provision.TLS(t)
			s := provision.NewMySQL(t, flavour, provision.Options{TLS: certs})
			for _, params := range []map[string]string{
				{"tls": "true", "tls_ca": certs.CAFile},
				{"tls": "true", "tls_ca": certs.CAFile, "tls_cert": certs.ClientCertFile, "tls_key": certs.ClientKeyFile, "tls_server_name": "localhost"},
				{"tls": "skip-verify"},
			} {
				l, err := open(t, suite.WithParams(s.URL(), params)).Mutex("k").Lock(t.Context())
				if err == nil {
					err = l.Unlock(t.Context())
				}
				if err != nil {
					t.Errorf("%v: %v", params, err)
				}
			}
			refused(t, "another authority", suite.WithParams(s.URL(), map[string]string{"tls": "true", "tls_ca": certs.OtherCAFile}), "certificate", s.Addr())
			refused(t, "another name", suite.WithParams(s.URL(), map[string]string{"tls": "true", "tls_ca": certs.CAFile, "tls_server_name": "elsewhere.test"}), "elsewhere.test")
			refused(t, "no TLS", s.URL(), s.Addr())
		})
	}
}
