package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/memcachelock"
)

// Each lock is on one server of the list. Without that server it fails, and those of others do not.
func TestSeveralServers(t *testing.T) {
	servers := map[string]*provision.Server{}
	var addrs []string
	for range 3 {
		s := provision.NewMemcached(t, provision.Options{})
		servers[s.Addr()] = s
		addrs = append(addrs, s.Addr())
	}
	url := "memcached://" + strings.Join(addrs, ",") + "?timeout=500ms"
	one, other := client(t, url), client(t, url)
	const keys = 60
	leases := map[string]*lock.Lease{}
	for i := range keys {
		name := fmt.Sprint("key ", i)
		l, err := one.Mutex(name).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leases[name] = l
		if _, err := other.Mutex(name).TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
			t.Fatalf("%s: the other client: %v", name, err)
		}
	}
	at := map[string]string{} // by key
	for _, addr := range addrs {
		admin := memcache.New(addr)
		defer admin.Close()
		n := 0
		for name := range leases {
			switch _, err := admin.Get(memcachelock.Key(memcachelock.DefaultPrefix, name)); {
			case err == nil && at[name] != "":
				t.Errorf("%s is at %s and at %s", name, at[name], addr)
			case err == nil:
				at[name] = addr
				n++
			case !errors.Is(err, memcache.ErrCacheMiss):
				t.Fatal(err)
			}
		}
		if n < keys/len(addrs)/3 {
			t.Errorf("%s has %d locks of %d", addr, n, keys)
		}
	}
	down := addrs[0]
	if err := servers[down].Kill(); err != nil {
		t.Fatal(err)
	}
	for name, l := range leases {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := l.Extend(ctx, 40*time.Second); (err != nil) != (at[name] == down) {
			t.Errorf("%s at %s, %s is down: %v", name, at[name], down, err)
		}
		cancel()
	}
	if err := servers[down].Restart(t.Context()); err != nil { // so that the clients close soon
		t.Fatal(err)
	}
}

// A server without versions is refused: its conditional writes have no condition.
func TestServerWithoutVersions(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{Args: []string{"--disable-cas"}})
	_, err := suite.Open(t.Context(), s.URL())
	if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "--disable-cas") {
		t.Errorf("want it refused, got %v", err)
	}
}

func client(t *testing.T, url string) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
