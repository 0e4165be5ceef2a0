package zookeeper_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/zklock"
)

// TestDriver tests what is specific to ZooKeeper, on every version.
func TestDriver(t *testing.T) {
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewZooKeeper(t, flavour)
			count := newCounter(t, s.Addr())
			for name, test := range map[string]func(*testing.T, string, *zk.Conn){
				"foreign children":    foreignChildren,
				"permissions":         permissions,
				"least privilege":     leastPrivilege,
				"bad input":           badInput,
				"guard":               guarded,
				"try leaves nothing":  tryLeavesNothing,
				"create not answered": createNotAnswered,
				"tls":                 overTLS,
			} {
				t.Run(name, func(t *testing.T) { test(t, s.Addr(), admin(t, []string{s.Addr()})) })
			}
			t.Run("session expires", func(t *testing.T) { sessionExpires(t, count) })
		})
	}
}

func foreignChildren(t *testing.T, addr string, conn *zk.Conn) {
	c := client(t, "zk://"+addr, 5*time.Second)
	makeNode(t, c, "foreign")
	for _, n := range []string{"lock-0000000000", "note", "_c_0123-lock-0000000001"} {
		must[string](t)(conn.Create(node("foreign")+"/"+n, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	}
	l := must[*lock.Lease](t)(c.Mutex("foreign").Lock(t.Context()))
	other := client(t, "zk://"+addr, 5*time.Second)
	if _, err := other.Mutex("foreign").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("a held key with foreign children: got %v", err)
	}
	info := must[backend.Info](t)(c.Inspect(t.Context(), "foreign"))
	if info.Holder == nil || info.Holder.Owner != l.Owner() || len(info.Waiters) > 0 {
		t.Errorf("got %+v", info)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if h := must[*backend.Holder](t)(c.Break(t.Context(), "foreign")); h != nil {
		t.Errorf("Break of a free key with foreign children: got %+v", h)
	}
}

func permissions(t *testing.T, addr string, conn *zk.Conn) {
	must[string](t)(conn.Create("/secured", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	url := "zk://me:se%2Fcret@" + addr + "/secured?auth=digest"
	mine := client(t, url, 5*time.Second)
	l := must[*lock.Lease](t)(mine.Mutex("key").Lock(t.Context()))
	same := client(t, url, 5*time.Second)
	if _, err := same.Mutex("key").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
		t.Errorf("the same user: got %v", err)
	}
	for _, u := range []string{"zk://" + addr + "/secured", "zk://me:wrong@" + addr + "/secured"} {
		other, err := lock.Open(t.Context(), u, lock.WithTTL(5*time.Second))
		if err != nil { // newer servers also refuse to say whether a node exists
			if !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "/secured/interlock") {
				t.Errorf("%s: open: %v", u, err)
			}
			continue
		}
		defer other.Close(context.Background())
		for _, key := range []string{"key", "another"} {
			_, err := other.Mutex(key).TryLock(t.Context())
			if !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "/secured/interlock/"+key) || !strings.Contains(err.Error(), "Permissions") {
				t.Errorf("%s: %s: got %v", u, key, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			if _, err := other.Mutex(key).Lock(ctx); !errors.Is(err, zk.ErrNoAuth) {
				t.Errorf("%s: %s: Lock: got %v", u, key, err)
			}
			cancel()
		}
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	must[string](t)(conn.Create("/readonly", nil, zk.FlagPersistent, zk.WorldACL(zk.PermRead)))
	if _, err := lock.Open(t.Context(), "zk://"+addr+"/readonly"); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "/readonly/interlock") {
		t.Errorf("a read-only chroot: got %v", err)
	}
}

// leastPrivilege locks with the permissions of the documentation and no other: CREATE on the
// chroot, and then READ and CREATE on the node of the prefix.
func leastPrivilege(t *testing.T, addr string, conn *zk.Conn) {
	if err := conn.AddAuth("digest", []byte("root:root")); err != nil {
		t.Fatal(err)
	}
	acl := func(perms int32) []zk.ACL {
		return append(zk.DigestACL(perms, "app", "secret"), zk.DigestACL(zk.PermAll, "root", "root")...)
	}
	must[string](t)(conn.Create("/least", nil, zk.FlagPersistent, acl(zk.PermRead|zk.PermCreate)))
	url := "zk://app:secret@" + addr + "/least"
	first := client(t, url, 5*time.Second)
	makeNode(t, first, "created")
	must[string](t)(conn.Create("/least-given", nil, zk.FlagPersistent, acl(zk.PermRead)))
	must[string](t)(conn.Create("/least-given/interlock", nil, zk.FlagPersistent, acl(zk.PermRead|zk.PermCreate)))
	all := acl(zk.PermRead | zk.PermWrite | zk.PermCreate | zk.PermDelete)
	must[string](t)(conn.Create("/least-given/interlock/given", nil, zk.FlagPersistent, all))
	for _, key := range []string{"given", "new"} {
		c, waits := waitingClient(t, url+"-given", 5*time.Second)
		l := must[*lock.Lease](t)(c.Mutex(key).Lock(t.Context()))
		granted := make(chan error, 1)
		go func() {
			l, err := c.Mutex(key).Lock(t.Context())
			if err == nil {
				err = errors.Join(l.Check(t.Context()), l.Unlock(t.Context()))
			}
			granted <- err
		}()
		<-waits
		if info, err := c.Inspect(t.Context(), key); err != nil || info.Holder == nil || len(info.Waiters) != 1 || info.Holder.Age <= 0 {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		if err := errors.Join(l.Check(t.Context()), l.Unlock(t.Context()), <-granted); err != nil {
			t.Error(err)
		}
		l = must[*lock.Lease](t)(c.Mutex(key).TryLock(t.Context()))
		if h, err := c.Break(t.Context(), key); err != nil || h == nil || h.Owner != l.Owner() {
			t.Errorf("Break: %+v, %v", h, err)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	app := admin(t, []string{addr})
	if err := app.AddAuth("digest", []byte("app:secret")); err != nil {
		t.Fatal(err)
	}
	for missing, perms := range map[string]int32{"READ": zk.PermCreate, "CREATE": zk.PermRead} {
		root := "/without-" + missing
		must[string](t)(conn.Create(root, nil, zk.FlagPersistent, acl(zk.PermRead)))
		must[string](t)(conn.Create(root+"/interlock", nil, zk.FlagPersistent, acl(perms)))
		if _, _, err := app.Exists(root + "/interlock"); err == nil && missing == "READ" {
			t.Log("this version answers exists without READ (ZOOKEEPER-2590)")
			continue
		}
		c, err := lock.Open(t.Context(), "zk://app:secret@"+addr+root)
		if err == nil {
			defer c.Close(context.Background())
			_, err = c.Mutex("key").TryLock(t.Context())
		}
		if !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), root+"/interlock") || strings.Contains(err.Error(), "secret") {
			t.Errorf("without %s on the node of the prefix: got %v", missing, err)
		}
	}
}

func badInput(t *testing.T, addr string, _ *zk.Conn) {
	if _, err := lock.Open(t.Context(), "zk://"+addr+"/no/such"); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), `chroot "/no/such"`) {
		t.Errorf("a chroot that does not exist: got %v", err)
	}
	start := time.Now()
	if _, err := lock.Open(t.Context(), "zk://127.0.0.1:1,127.0.0.1:2"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || time.Since(start) > 8*time.Second {
		t.Errorf("no server: got %v after %v", err, time.Since(start))
	}
	c := client(t, "zk://"+addr, 5*time.Second)
	caps := c.Capabilities()
	if caps.MinTTL != 2*provision.ZooKeeperTick || caps.MaxTTL != 10*time.Minute {
		t.Errorf("bounds: got %v to %v", caps.MinTTL, caps.MaxTTL)
	}
	for ttl, bound := range map[time.Duration]string{caps.MinTTL - 1: "400ms", caps.MaxTTL + 1: "10m0s"} {
		if _, err := c.Mutex("x", lock.WithTTL(ttl)).TryLock(t.Context()); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), bound) {
			t.Errorf("TTL %v: got %v", ttl, err)
		}
	}
	l := must[*lock.Lease](t)(c.Mutex("extended").TryLock(t.Context()))
	if err := l.Extend(t.Context(), 6*time.Second); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "5s") {
		t.Errorf("Extend beyond the session timeout: got %v", err)
	}
	if err := errors.Join(l.Extend(t.Context(), 2*time.Second), l.Unlock(t.Context())); err != nil {
		t.Error(err)
	}
}

func guarded(t *testing.T, addr string, conn *zk.Conn) {
	must[string](t)(conn.Create("/data", []byte("0"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)))
	b := must[backend.Backend](t)(suite.Open(t.Context(), "zk://"+addr)).(*zklock.Backend)
	c := must[*lock.Client](t)(lock.New(b, lock.WithTTL(5*time.Second)))
	defer c.Close(context.Background())
	l := must[*lock.Lease](t)(c.Mutex("guard").Lock(t.Context()))
	check := must[*zk.CheckVersionRequest](t)(b.Guard(l))
	use := must[*zk.Conn](t)(b.Client(t.Context(), 5*time.Second))
	if _, err := use.Multi(check, &zk.SetDataRequest{Path: "/data", Data: []byte("1"), Version: -1}); err != nil {
		t.Errorf("by the holder: %v", err)
	}
	if _, err := c.Break(t.Context(), "guard"); err != nil {
		t.Fatal(err)
	}
	if _, err := use.Multi(check, &zk.SetDataRequest{Path: "/data", Data: []byte("2"), Version: -1}); !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("by a holder whose lock was broken: got %v", err)
	}
	<-l.Done()
	eventually(t, 3*time.Second, "Guard of a lost lease", func() error {
		if _, err := b.Guard(l); !errors.Is(err, lock.ErrLost) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if data, _, err := conn.Get("/data"); err != nil || string(data) != "1" {
		t.Errorf("data %q, %v", data, err)
	}
}

func tryLeavesNothing(t *testing.T, addr string, conn *zk.Conn) {
	c, other := client(t, "zk://"+addr, 5*time.Second), client(t, "zk://"+addr, 5*time.Second)
	l := must[*lock.Lease](t)(c.Mutex("tried").Lock(t.Context()))
	for range 5 {
		var locked *lock.LockedError
		if _, err := other.Mutex("tried").TryLock(t.Context()); !errors.As(err, &locked) || locked.Holder.Owner != l.Owner() || locked.Holder.Metadata == "" {
			t.Errorf("got %v", err)
		}
		if nodes, stat, err := conn.Children(node("tried")); err != nil || len(nodes) != 1 || stat.Cversion > 3 {
			t.Errorf("after a refused TryLock: nodes %q, %d changes, %v", nodes, stat.Cversion, err)
		}
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	l = must[*lock.Lease](t)(other.Mutex("tried").TryLock(t.Context()))
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// createNotAnswered loses the reply to the request that creates the node: the attempt
// finds the node and does not create a second one.
func createNotAnswered(t *testing.T, addr string, conn *zk.Conn) {
	p := provision.NewProxy(t, addr)
	c := client(t, "zk://"+p.Addr(), 5*time.Second)
	for _, wait := range []bool{false, true} {
		key := fmt.Sprint("unanswered ", wait)
		makeNode(t, c, key)
		dropped := p.DropReply(func(chunk []byte) bool { return sends(chunk, opMulti, "unanswered") })
		call := c.Mutex(key).TryLock
		if wait {
			call = c.Mutex(key).Lock
		}
		l, err := call(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-dropped:
		case <-time.After(10 * time.Second):
			t.Fatal("no reply was lost")
		}
		nodes, _, err := conn.Children(node(key))
		if err != nil || len(nodes) != 1 || !strings.HasPrefix(nodes[0], l.Owner()) {
			t.Errorf("got %q, %v, want one of %s", nodes, err, l.Owner())
		}
		if err := errors.Join(l.Check(t.Context()), l.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
		nothingLeft(t, []string{addr}, key)
	}
}

// sends reports whether a chunk of whole frames contains a request of the operation op
// with that text.
func sends(chunk []byte, op uint32, text string) bool {
	for len(chunk) >= 12 {
		n := min(4+int(binary.BigEndian.Uint32(chunk)), len(chunk))
		if binary.BigEndian.Uint32(chunk[8:]) == op && bytes.Contains(chunk[:n], []byte(text)) {
			return true
		}
		chunk = chunk[n:]
	}
	return false
}
