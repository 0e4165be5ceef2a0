package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/natslock"
)

// counted is a server whose requests the user sys can count.
func counted(t testing.TB) provision.Options {
	return configured(t, `accounts {
	APP: {jetstream: enabled, users: [{user: app, password: app}]}
	SYS: {users: [{user: sys, password: sys}]}
}
system_account: SYS
no_auth_user: app
`)
}

// configured is a server with lines of configuration.
func configured(t testing.TB, lines string) provision.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return provision.Options{Args: []string{"--config", file}, Files: []string{file}}
}

func connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ErrorHandler(nil)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// bucketOf returns the bucket of a name.
func bucketOf(t testing.TB, conn *nats.Conn, name string) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// counter returns how many messages clients of the account APP have sent to the server. Its own requests are those of
// the account SYS. The count of the whole server would not do: it has the request for the count or has it not yet.
func counter(s *provision.Server) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		conn, err := nats.Connect(s.Addr(), nats.UserInfo("sys", "sys"))
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		reply, err := conn.RequestWithContext(ctx, "$SYS.REQ.ACCOUNT.APP.STATZ", []byte(`{"include_unused": true}`))
		if err != nil {
			return 0, err
		}
		var stats struct {
			Data struct {
				Accounts []struct {
					Received struct {
						Msgs int64 `json:"msgs"`
					} `json:"received"`
				} `json:"account_statz"`
			} `json:"data"`
		}
		if err := json.Unmarshal(reply.Data, &stats); err != nil {
			return 0, err
		}
		if len(stats.Data.Accounts) != 1 {
			return 0, fmt.Errorf("the count of account APP: want one account, got %s", reply.Data)
		}
		return stats.Data.Accounts[0].Received.Msgs, nil
	}
}

// harness returns the harness of one server, which the suite may stop and restart.
func harness(t *testing.T, s *provision.Server) conformance.Harness {
	base := s.URL()
	admin := connect(t, s.Addr())
	if b, err := suite.Open(t.Context(), base); err != nil { // makes the bucket
		t.Fatal(err)
	} else if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	bucket := bucketOf(t, admin, natslock.DefaultBucket)
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, base+"/"+prefix)
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			b, err := suite.Open(ctx, "nats://"+p.Addr()+"?timeout=500ms")
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     suite.OwnGoroutines,
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    counter(s),
		Budget: conformance.Budget{
			IdleHolderCommands: 8,
			IdleWaiterCommands: 6,
			DeadProcess:        backend.MaxProvisionalTTL,
		},
		Leftovers: func(ctx context.Context, name string) ([]string, error) {
			item, err := bucket.Get(ctx, natslock.Key(name))
			if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && suite.FreeRecord(string(item.Value())) {
				return nil, nil // the record of a free lock stays
			}
			return []string{natslock.Key(name)}, err
		},
		ForeignHolder: func(ctx context.Context, name string, _ time.Duration) (func(context.Context) error, error) {
			if _, err := bucket.Create(ctx, natslock.Key(name), []byte("another client")); err != nil {
				return nil, fmt.Errorf("create %q: %w", name, err)
			}
			return func(ctx context.Context) error { return bucket.Purge(ctx, natslock.Key(name)) }, nil
		},
		DestroyState: func(ctx context.Context, name string) error { return bucket.Purge(ctx, natslock.Key(name)) },
		KeepsFence:   true,
		KeyOf:        natslock.Key,
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return guardedWrite(ctx, bucket, "guarded."+natslock.Key(name), token)
		},
	}
}

// guardedWrite writes only with a token that is not lower than the highest seen.
func guardedWrite(ctx context.Context, bucket jetstream.KeyValue, key string, token uint64) error {
	value := strconv.AppendUint(nil, token, 10)
	for {
		item, err := bucket.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			if _, err = bucket.Create(ctx, key, value); errors.Is(err, jetstream.ErrKeyExists) {
				continue
			}
			return err
		}
		if err != nil {
			return err
		}
		highest, err := strconv.ParseUint(string(item.Value()), 10, 64)
		if err != nil {
			return err
		}
		if token < highest {
			return errors.New("stale fencing token")
		}
		if _, err = bucket.Update(ctx, key, value, item.Revision()); !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
}
