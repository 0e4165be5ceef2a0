package security_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/integration/provision"
)

func natsTarget(t *testing.T) target {
	certs := provision.TLS(t)
	config := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, `authorization { users: [
	{user: app, password: %q}
	{user: stranger, password: %q, permissions: {publish: nothing, subscribe: "_INBOX.>"}}
] }
`, provision.Secret, provision.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := provision.NewNATS(t, provision.NATS2, provision.Options{
		TLS: certs, Username: "app", Password: provision.Secret,
		Args: []string{"--config", config}, Files: []string{certs.CAFile, certs.CertFile, certs.KeyFile, config},
	})
	admin := must[*nats.Conn](t)(nats.Connect(s.Addr(), nats.Secure(certs.Client()), nats.UserInfo("app", provision.Secret)))
	t.Cleanup(admin.Close)
	js := must[jetstream.JetStream](t)(jetstream.New(admin))
	bystander := must[jetstream.KeyValue](t)(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "bystander"}))
	must[uint64](t)(bystander.Put(t.Context(), "bystander", []byte("alive")))
	good := with(s.URL(), "tls_ca", certs.CAFile, "timeout", "10s")
	short := with(good, "timeout", "1s")
	return target{
		url: good,
		refused: map[string]refusal{
			"another authority":  {with(good, "tls_ca", certs.OtherCAFile), "certificate"},
			"another name":       {with(good, "tls_server_name", "elsewhere.test"), "elsewhere.test"},
			"no TLS":             {with(scheme(good, "nats"), "tls_ca", ""), s.Addr()},
			"a wrong password":   {as(good, "app", wrong), "Authorization Violation"},
			"no password":        {as(good, "", ""), "Authorization Violation"},
			"no such user":       {as(good, "no-such-user", provision.Secret), "Authorization Violation"},
			"a token for a user": {strings.Replace(good, "app:"+provision.Secret, provision.Secret, 1), "Authorization Violation"},
			"no permission":      {as(short, "stranger", provision.Secret), `Permissions Violation for Publish to "$JS.API.STREAM.INFO.KV_locks"`},
		},
		others: func(t *testing.T) []string {
			var other []string
			for name := range js.StreamNames(t.Context()).Name() {
				if name != "KV_locks" {
					other = append(other, name)
				}
			}
			slices.Sort(other)
			return append(other, string(must[jetstream.KeyValueEntry](t)(bystander.Get(t.Context(), "bystander")).Value()))
		},
		params: []string{"timeout", "max_bytes", "domain", "replicas", "creds", "nkey"},
	}
}
