package etcd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func adminOf(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// harness returns the harness of one node, which the suite may stop and restart.
func harness(t *testing.T, s *provision.Server, admin *clientv3.Client) conformance.Harness {
	base := s.URL()
	folder := func(name string) string { return etcdlock.Folder(etcdlock.DefaultPrefix, name) }
	return conformance.Harness{
		Name: s.Flavour,
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, base) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, base+"/"+url.PathEscape(prefix))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			p := provision.NewProxy(t, s.Addr())
			b, err := suite.Open(ctx, "etcd://"+p.Addr())
			return b, suite.Link{T: t, Proxy: p}, err
		},
		Worker:            conformance.Self(base),
		ClockWorker:       provision.ClockWorker(t, conformance.Self(base)),
		OwnGoroutines:     suite.OwnGoroutines,
		StopServer:        func(context.Context) error { return s.Pause() },
		ResumeServer:      func(context.Context) error { return s.Resume() },
		RestartServer:     func(ctx context.Context) error { return errors.Join(s.Kill(), s.Restart(ctx)) },
		RestartKeepsLocks: true,
		ServerCommands:    func(ctx context.Context) (int64, error) { return requests(ctx, s.Addr()) },
		Budget: conformance.Budget{
			WakesPerRelease: 1, IdleHolderCommands: 4,
			IdleWaiterCommands: 0.01, // none
			DeadProcess:        backend.MaxProvisionalTTL,
			HandOffCommands:    5,
		},
		Leftovers: func(ctx context.Context, name string) ([]string, error) {
			r, err := admin.Get(ctx, folder(name), clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return nil, err
			}
			var left []string
			for _, kv := range r.Kvs {
				left = append(left, string(kv.Key))
			}
			return left, nil
		},
		ForeignHolder: func(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
			return foreign(ctx, admin, folder(name)+"another-program", ttl)
		},
		DestroyState: func(ctx context.Context, name string) error {
			_, err := admin.Delete(ctx, folder(name), clientv3.WithPrefix())
			return err
		},
		KeepsFence: true,
		ExpireSession: func(ctx context.Context, b backend.Backend) error {
			for _, id := range b.(*etcdlock.Backend).Leases() {
				if _, err := admin.Revoke(ctx, id); err != nil {
					return err
				}
			}
			return nil
		},
		KeyOf: folder,
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return guardedWrite(ctx, admin, "guarded/"+name, token)
		},
	}
}

func foreign(ctx context.Context, admin *clientv3.Client, key string, ttl time.Duration) (func(context.Context) error, error) {
	l, err := admin.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return nil, err
	}
	r, err := admin.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "", clientv3.WithLease(l.ID))).Commit()
	if err != nil || !r.Succeeded {
		return nil, fmt.Errorf("put %q: %v, %w", key, r, err)
	}
	return func(ctx context.Context) error {
		_, err := admin.Delete(ctx, key)
		return err
	}, nil
}

// guardedWrite writes only with a token that is not lower than the highest seen.
func guardedWrite(ctx context.Context, admin *clientv3.Client, key string, token uint64) error {
	value := fmt.Sprintf("%020d", token)
	r, err := admin.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), ">", value)).
		Else(clientv3.OpPut(key, value)).Commit()
	if err == nil && r.Succeeded {
		err = errors.New("stale fencing token")
	}
	return err
}

// requests returns the number of requests of clients to the server. Keep-alives and new
// watches are messages on streams, which etcd does not count. A session sends keep-alives
// at the same rate with and without locks.
func requests(ctx context.Context, addr string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var n int64
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		l := lines.Text()
		if !strings.HasPrefix(l, "grpc_server_started_total{") || !strings.Contains(l, `grpc_type="unary"`) {
			continue
		}
		v, err := strconv.ParseFloat(l[strings.LastIndexByte(l, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metrics: %q", l)
		}
		n += int64(v)
	}
	return n, lines.Err()
}
