package nats_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pair returns a key pair, its public key and its seed.
func pair(t *testing.T, kind nkeys.PrefixByte) (keys nkeys.KeyPair, public string, seed []byte) {
	t.Helper()
	keys, err := nkeys.CreatePair(kind)
	if err != nil {
		t.Fatal(err)
	}
	if public, err = keys.PublicKey(); err != nil {
		t.Fatal(err)
	}
	if seed, err = keys.Seed(); err != nil {
		t.Fatal(err)
	}
	return keys, public, seed
}

// locks wants a lock with this URL, and the server to refuse another one, with an error that does not show the seed.
func locks(t *testing.T, good, bad string, secret []byte) {
	t.Helper()
	c := client(t, good)
	if err := lock.Do(t.Context(), c.Mutex("a"), func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Error(err)
	}
	c, err := lock.Open(t.Context(), bad)
	if err == nil {
		_ = c.Close(t.Context())
		t.Fatal("a stranger was let in")
	}
	if !strings.Contains(err.Error(), "uthorization") || strings.Contains(err.Error(), string(secret)) {
		t.Errorf("want an error that names the authorization and not the seed, got: %v", err)
	}
}

func TestNKey(t *testing.T) {
	_, public, seed := pair(t, nkeys.PrefixByteUser)
	o := configured(t, fmt.Sprintf("authorization { users: [{user: admin, password: admin}, {nkey: %s}] }\n", public))
	o.Username, o.Password = "admin", "admin"
	s := provision.NewNATS(t, provision.NATS2, o)
	_, _, other := pair(t, nkeys.PrefixByteUser)
	url := "nats://" + s.Addr() + "?nkey="
	locks(t, url+file(t, "seed", seed), url+file(t, "other", other), other)
}

// Credentials are a user's JWT, which an account has signed, and a seed.
func TestCredentials(t *testing.T) {
	operator, operatorKey, _ := pair(t, nkeys.PrefixByteOperator)
	_, systemKey, _ := pair(t, nkeys.PrefixByteAccount)
	account, accountKey, _ := pair(t, nkeys.PrefixByteAccount)
	signed := func(claims interface {
		Encode(nkeys.KeyPair) (string, error)
	}, by nkeys.KeyPair) string {
		text, err := claims.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	issuer := jwt.NewOperatorClaims(operatorKey)
	issuer.SystemAccount = systemKey
	owner := jwt.NewAccountClaims(accountKey)
	owner.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	o := configured(t, fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n\t%s: %s\n\t%s: %s\n}\n",
		signed(issuer, operator), systemKey, systemKey, signed(jwt.NewAccountClaims(systemKey), operator), accountKey, signed(owner, operator)))
	credentials := func(account nkeys.KeyPair) (name string, seed []byte) {
		_, public, seed := pair(t, nkeys.PrefixByteUser)
		text, err := jwt.FormatUserConfig(signed(jwt.NewUserClaims(public), account), seed)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, "user.creds", text), seed
	}
	o.Creds, _ = credentials(account)
	s := provision.NewNATS(t, provision.NATS2, o)
	stranger, _, _ := pair(t, nkeys.PrefixByteAccount)
	other, secret := credentials(stranger)
	url := "nats://" + s.Addr() + "?creds="
	locks(t, url+o.Creds, url+other, secret)
}
