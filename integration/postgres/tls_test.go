package postgres_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// write lets the server write a file in its data directory.
func write(t *testing.T, admin *pgxpool.Pool, name, content string) {
	t.Helper()
	_, err := admin.Exec(t.Context(), fmt.Sprintf("COPY (SELECT unnest(string_to_array('%s', E'\\n'))) TO PROGRAM 'umask 077; cat >%s'",
		strings.TrimSpace(content), name), pgx.QueryExecModeSimpleProtocol)
	must(t, err)
}

func TestTLS(t *testing.T) {
	certs := provision.TLS(t)
	for _, flavour := range provision.PostgresFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewPostgres(t, flavour)
			admin := pgtest.Admin(t, s)
			for name, file := range map[string]string{"server.crt": certs.CertFile, "server.key": certs.KeyFile, "ca.crt": certs.CAFile} {
				pem, err := os.ReadFile(file)
				must(t, err)
				write(t, admin, name, string(pem))
			}
			sql(t, admin, "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'topsecret'; CREATE ROLE client LOGIN SUPERUSER")
			sql(t, admin, "ALTER SYSTEM SET ssl_ca_file = 'ca.crt'")
			sql(t, admin, "ALTER SYSTEM SET ssl = on")
			write(t, admin, "pg_hba.conf", "hostssl all app all scram-sha-256\nhostssl all client all cert\nhost all postgres all trust")
			sql(t, admin, "SELECT pg_reload_conf()")
			app, client := as(s.URL(), "app"), strings.Replace(s.URL(), "postgres@", "client@", 1)
			verify := map[string]string{"sslmode": "verify-full", "sslrootcert": certs.CAFile}
			must(t, eventually(func() error { // the server has read the files
				c, err := lock.Open(t.Context(), suite.WithParams(app, verify))
				if err == nil {
					err = c.Close(t.Context())
				}
				return err
			}))
			for url, params := range map[string]map[string]string{
				app:       verify,
				app + "/": {"sslmode": "require"},
				client: {
					"sslmode": "verify-ca", "sslrootcert": certs.CAFile,
					"sslcert": certs.ClientCertFile, "sslkey": certs.ClientKeyFile,
				},
			} {
				c, err := lock.Open(t.Context(), suite.WithParams(strings.TrimSuffix(url, "/"), params))
				if err != nil {
					t.Errorf("%v: %v", params, err)
					continue
				}
				handOver(t, c) // also listens
				must(t, c.Close(t.Context()))
			}
			for what, c := range map[string]struct {
				url, says string
				params    map[string]string
			}{
				"another authority":           {app, "certificate", map[string]string{"sslmode": "verify-full", "sslrootcert": certs.OtherCAFile}},
				"no TLS":                      {app, "pg_hba.conf", map[string]string{"sslmode": "disable"}},
				"no certificate":              {client, "certificate", map[string]string{"sslmode": "require"}},
				"a wrong password":            {strings.Replace(app, "topsecret", "topsecret1", 1), "password authentication failed", verify},
				"a key that is a certificate": {client, "sslkey", map[string]string{"sslmode": "require", "sslcert": certs.ClientCertFile, "sslkey": certs.CAFile}},
				"another host name":           {strings.Replace(app, "127.0.0.1", "127.0.0.2", 1), "127.0.0.2", verify},
			} {
				if what == "another host name" && !strings.HasPrefix(s.Source, "binary") {
					continue
				}
				b, err := suite.Open(t.Context(), suite.WithParams(c.url, c.params))
				if err == nil {
					_ = b.Close(t.Context())
				}
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "topsecret") {
					t.Errorf("%s: want an error that says %q and no password, got %v", what, c.says, err)
				}
			}
		})
	}
}

// handOver waits for a lock and hands it over.
func handOver(t *testing.T, c *lock.Client) {
	t.Helper()
	l, err := c.Mutex("k").Lock(t.Context())
	must(t, err)
	next := make(chan error, 1)
	go func() {
		l, err := c.Mutex("k").Lock(t.Context())
		if err == nil {
			err = l.Unlock(t.Context())
		}
		next <- err
	}()
	must(t, eventually(func() error {
		info, err := c.Inspect(t.Context(), "k")
		if err == nil && len(info.Waiters) == 0 {
			err = fmt.Errorf("no waiter")
		}
		return err
	}))
	must(t, l.Unlock(t.Context()))
	must(t, <-next)
}
