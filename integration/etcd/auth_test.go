package etcd_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
)

// TestAuthentications counts how often the servers authenticate. Each time costs them a hash
// of the password and a proposal, so a few processes that do it for each keep-alive, or for
// each watch, make a server too slow for the leases.
func TestAuthentications(t *testing.T) {
	s := provision.NewEtcd(t, provision.Etcd37, provision.Options{})
	url := withPassword(t, s)
	const processes, ttl, held = 8, 3 * time.Second, 15 * time.Second
	const each = 2 // a pause of the server of half a second makes a process open another stream
	var clients []*lock.Client
	var leases []*lock.Lease
	for i := range processes {
		c, err := lock.Open(t.Context(), url, lock.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		l, err := c.Mutex(fmt.Sprint("idle ", i)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clients, leases = append(clients, c), append(leases, l)
		for authentications(t, s) < 3*(i+1) && l.Err() == nil { // so that they do not all authenticate at once
			time.Sleep(10 * time.Millisecond)
		}
	}
	lost := make(chan error, processes)
	for _, l := range leases {
		context.AfterFunc(l.Context(), func() { lost <- l.Err() })
	}
	select {
	case err := <-lost:
		t.Fatalf("a lease was lost: %v", err)
	case <-time.After(ttl): // every process has sent keep-alives and watches its key
	}
	before := authentications(t, s)
	t.Logf("%d authentications for %d processes until all held a lock", before, processes)
	if before > (3+each)*processes {
		t.Errorf("want three for each process, to connect, to keep leases alive and to watch keys, and at most %d more", each)
	}
	select {
	case err := <-lost:
		t.Fatalf("a lease was lost: %v", err)
	case <-time.After(held):
	}
	if n := authentications(t, s) - before; n > each*processes {
		t.Errorf("%d authentications while %d processes held a lock for %v and sent %d keep-alives", n, processes, held, processes*int(3*held/ttl))
	}
	for _, l := range leases {
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, c := range clients[1:] {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	before = authentications(t, s)
	const times = 24
	for range times {
		l, err := clients[0].Mutex("short").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // the work, long enough for a watch of the key
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := authentications(t, s) - before; n > 2*each {
		t.Errorf("%d authentications while a process held a lock %d times", n, times)
	}
}

// withPassword enables authentication and returns the URL of a user with a role for the
// locks.
func withPassword(t *testing.T, s *provision.Server) string {
	t.Helper()
	admin := adminOf(t, s.Addr())
	ctx := t.Context()
	for _, f := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "root-secret"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.UserAdd(ctx, "app", "app-secret"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "locks", "lock/", clientv3.GetPrefixRangeEnd("lock/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserGrantRole(ctx, "app", "locks"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	return "etcd://app:app-secret@" + s.Addr()
}

// authentications returns how often the server has authenticated a user.
func authentications(t *testing.T, s *provision.Server) int {
	t.Helper()
	res, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		l := lines.Text()
		if strings.HasPrefix(l, "grpc_server_started_total{") && strings.Contains(l, `grpc_method="Authenticate"`) {
			n := 0
			if _, err := fmt.Sscan(l[strings.LastIndexByte(l, ' ')+1:], &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the metrics of the server have no number of authentications")
	return 0
}
