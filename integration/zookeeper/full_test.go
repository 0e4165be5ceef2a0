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

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// TestDiskFull fills the file system of a server's transaction log, so that the server
// ends. Then it frees space and starts the server again.
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
	const ttl, limit = 4 * time.Second, time.Minute
	dir := provision.Tmpfs(t, 1<<20)
	s := provision.NewZooKeeperLogging(t, flavour, dir, "preAllocSize=64")
	ctx, cancel := context.WithTimeout(t.Context(), 3*limit)
	defer cancel()
	url := "zk://" + s.Addr()
	c := client(t, url, ttl)
	makeNode(t, c, "other") // so that a lock takes one request
	held := must[*lock.Lease](t)(c.Mutex("k").Lock(ctx))
	before, _ := held.Token()

	filler := filepath.Join(dir, "filler")
	fillDisk(t, filler)
	lockUntilRefused(ctx, t, c.Mutex("other"))
	if err := s.WaitReady(ctx); err == nil || !strings.Contains(err.Error(), "the server ended") {
		t.Fatalf("want a server that has ended, got %v", err)
	}
	select {
	case <-held.Done():
		if err := held.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("want a loss, got %v", err)
		}
	case <-time.After(ttl + limit):
		t.Fatal("the lease of the holder did not end")
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
			t.Fatalf("with free space: %v", err)
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
	for _, name := range []string{"k", "other"} { // the session from before ends a little later
		nothingLeft(t, []string{s.Addr()}, name)
	}
}

// lockUntilRefused locks and unlocks m until TryLock fails. It must fail before ctx ends.
func lockUntilRefused(ctx context.Context, t *testing.T, m lock.Mutex) {
	t.Helper()
	start := time.Now()
	for {
		l, err := m.TryLock(ctx)
		if err != nil {
			t.Logf("refused after %v: %v", time.Since(start), err)
			if ctx.Err() != nil {
				t.Errorf("TryLock while the disk is full did not end by itself: %v", err)
			}
			return
		}
		if err := l.Unlock(ctx); err != nil { // there was a little space
			t.Logf("unlock: %v", err)
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
