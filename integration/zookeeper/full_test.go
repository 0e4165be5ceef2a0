package zookeeper_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// TestDiskFull fills the file system of the log of transactions, upon which a server
// ends. It is given room and started again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			testDiskFull(t, flavour)
		})
	}
}

func testDiskFull(t *testing.T, flavour string) {
	const ttl, patience = 4 * time.Second, time.Minute
	dir := provision.Tmpfs(t, 1<<20)
	s := provision.NewZooKeeperLogging(t, flavour, dir, "preAllocSize=64")
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	url := "zk://" + s.Addr()
	c := client(t, url, ttl)
	makeNode(t, c, "other") // so that a lock of it is one request
	held := must[*lock.Lease](t)(c.Mutex("k").Lock(ctx))
	before, _ := held.Token()

	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	start := time.Now()
	for {
		l, err := c.Mutex("other").TryLock(ctx)
		if err != nil {
			t.Logf("refused after %v: %v", time.Since(start), err)
			if ctx.Err() != nil {
				t.Errorf("TryLock while the disk is full did not end by itself: %v", err)
			}
			break
		}
		if err := l.Unlock(ctx); err != nil { // there was a little room
			t.Logf("unlock: %v", err)
		}
	}
	if err := s.WaitReady(ctx); err == nil || !strings.Contains(err.Error(), "the server ended") {
		t.Fatalf("want a server that has ended, got %v", err)
	}
	select {
	case <-held.Done():
		if err := held.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want a loss, got %v", err)
		}
	case <-time.After(ttl + patience):
		t.Fatal("the holder never learned that it lost its lock")
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	last := before
	for _, c := range []*lock.Client{client(t, url, ttl), c} {
		l, err := c.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatalf("with room again: %v", err)
		}
		if token, _ := l.Token(); token <= last {
			t.Errorf("token %d after %d", token, last)
		} else {
			last = token
		}
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	conn := admin(t, []string{s.Addr()})
	for _, name := range []string{"k", "other"} { // the session of before has a little life left
		for {
			left, _, err := conn.Children(node(name))
			if errors.Is(err, zk.ErrNoNode) || err == nil && len(left) == 0 {
				break
			}
			if err != nil || ctx.Err() != nil {
				t.Fatalf("left of %s: %q, %v", name, left, err)
			}
		}
	}
}

func fillDisk(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
