package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// A server or a proxy closes idle connections. That costs no error and no lease.
func TestClosedConnections(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{})
	p := provision.NewProxy(t, s.Addr())
	c := client(t, "memcached://"+p.Addr())
	held, err := c.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Delay(20 * time.Millisecond) // so that the requests overlap
	lockMany(t, c, 60)
	p.Delay(0)
	if n := p.Connections(); n < 8 {
		t.Fatalf("%d connections: want some that can be closed", n)
	}
	p.ResetPeer()
	for i := range 80 {
		l, err := c.Mutex(fmt.Sprint("after ", i)).Lock(t.Context())
		if err != nil {
			t.Fatalf("Lock %d after all connections were closed: %v", i, err)
		}
		unlock(t, l)
	}
	p.ResetPeer()
	if err := held.Extend(t.Context(), 30*time.Second); err != nil {
		t.Errorf("Extend after all connections were closed: %v", err)
	}
	p.ResetPeer()
	unlock(t, held)
}

// A connection may end before the reply to a write. The write is repeated, and the record says whose it is.
func TestReplyLostWithItsConnection(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{})
	p := provision.NewProxy(t, s.Addr())
	b, err := suite.Open(t.Context(), "memcached://"+p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	req := backend.Request{Key: "k", Owner: strings.Repeat("a", 32), TTL: 30 * time.Second}
	p.CutAfterReplies(1) // that of the read
	g, err := b.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatalf("TryAcquire: %v", err)
	}
	p.CutAfterReplies(1)
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Errorf("Renew: %v", err)
	}
	p.CutAfterReplies(1)
	if err := g.Release(t.Context()); err != nil {
		t.Errorf("Release: %v", err)
	}
	req.Owner = strings.Repeat("b", 32)
	next, err := b.TryAcquire(t.Context(), req)
	if err != nil || next.Token() != g.Token()+1 {
		t.Errorf("the next attempt: want a grant with the token %d, got %v, %v", g.Token()+1, next, err)
	}
}

// A write is lost, and repeated after another client has taken the lock: it is refused then.
func TestWriteLostToAnotherClient(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{})
	p := provision.NewProxy(t, s.Addr())
	b, err := suite.Open(t.Context(), "memcached://"+p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	other := client(t, s.URL())
	var l *lock.Lease
	p.DropRequest(func(request []byte) bool {
		if !strings.HasPrefix(string(request), "add ") {
			return false
		}
		l, err = other.Mutex("k").TryLock(context.Background())
		return true
	})
	_, refused := b.TryAcquire(t.Context(), backend.Request{Key: "k", Owner: strings.Repeat("a", 32), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if refused == nil {
		t.Error("a second holder")
	}
	unlock(t, l)
}

// A client has a bounded number of connections, however many goroutines use it.
func TestBoundedConnections(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{Args: []string{"-c", "80"}})
	c := client(t, s.URL()+"?ttl=2s")
	held, err := c.Mutex("held").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(4 * time.Second)
	for time.Now().Before(end) {
		lockMany(t, c, 500)
	}
	if err := held.Err(); err != nil {
		t.Errorf("a lease of the same client: %v", err)
	}
	unlock(t, held)
	few := client(t, s.URL()+"?connections=2")
	lockMany(t, few, 50)
}

// A server that listens at a Unix socket.
func TestUnixSocket(t *testing.T) {
	binary, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("there is no memcached on this machine, and a container shares no socket: ", err)
	}
	socket := filepath.Join(t.TempDir(), "memcached.sock")
	server := exec.Command(binary, "-u", "root", "-s", socket)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	up := func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	for start := time.Now(); !up(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the server does not listen")
		}
	}
	a, b := client(t, "memcached://"+socket), client(t, "memcached://"+socket+"?prefix=lock")
	l, err := a.Mutex("k").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mutex("k").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("another client with the default prefix: want ErrLocked, got %v", err)
	}
	other := client(t, "memcached://"+socket+"?prefix=other")
	free, err := other.Mutex("k").TryLock(t.Context())
	if err != nil {
		t.Fatalf("another prefix: %v", err)
	}
	unlock(t, free)
	unlock(t, l)
}

// A server that is full, and removes nothing, certainly refuses a new lock.
func TestFullServer(t *testing.T) {
	s := provision.NewMemcached(t, provision.Options{Args: []string{"--disable-evictions", "-m", "2"}})
	b, err := suite.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	for i := range 100_000 {
		req := backend.Request{Key: strconv.Itoa(i), Owner: fmt.Sprintf("%032x", i), TTL: time.Minute}
		if _, err = b.TryAcquire(t.Context(), req); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "out of memory") || backend.OutcomeUnknown(err) {
		t.Errorf("want an error of a request that was not executed, with out of memory, got %v", err)
	}
}

// lockMany locks and unlocks n locks at once.
func lockMany(t *testing.T, c *lock.Client, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			l, err := c.Mutex(fmt.Sprint("many ", i)).Lock(t.Context())
			if err != nil {
				t.Errorf("Lock %d of %d at once: %v", i, n, err)
				return
			}
			unlock(t, l)
		})
	}
	all.Wait()
}

func unlock(t *testing.T, l *lock.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}
