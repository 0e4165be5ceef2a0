//go:build unix

package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/filelock"
	"github.com/interlock-go/lock/integration/provision"
)

// ahead is a counter that the clock does not reach: a token above it comes from it.
const ahead = uint64(1) << 60

func openFile(t *testing.T, dir string) *filelock.Backend {
	t.Helper()
	b, err := filelock.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

func request(key string, n int) backend.Request {
	return backend.Request{Key: key, Owner: fmt.Sprintf("%032x", n), TTL: time.Hour}
}

func take(t *testing.T, b *filelock.Backend, key string) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), request(key, 1))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func release(t *testing.T, g backend.Grant) {
	t.Helper()
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func fence(t *testing.T, b *filelock.Backend, key string) string {
	t.Helper()
	dir, err := b.Path(key)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "fence")
}

// count uses a key once, so that it has a counter, and sets that.
func count(t *testing.T, b *filelock.Backend, key string, n uint64) {
	t.Helper()
	release(t, take(t, b, key))
	if err := os.WriteFile(fence(t, b, key), fmt.Appendf(nil, "%020d\n", n), 0o600); err != nil {
		t.Fatal(err)
	}
}

// counter reads the counter, which must not be destroyed.
func counter(t *testing.T, b *filelock.Backend, key string) uint64 {
	t.Helper()
	text, err := os.ReadFile(fence(t, b, key))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n") // the note of the last grant follows, if there is one
	n, err := strconv.ParseUint(first, 10, 64)
	if err != nil || len(first) != 20 {
		t.Fatalf("the counter is %q", text)
	}
	return n
}

// wantOnlyFence wants nothing in the folder of a key but its counter.
func wantOnlyFence(t *testing.T, b *filelock.Backend, key string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(fence(t, b, key)))
	if err != nil || len(entries) > 1 {
		t.Errorf("left of %s: %v, %v", key, entries, err)
	}
}

func TestDiskFull(t *testing.T) {
	dir := filepath.Join(provision.Tmpfs(t, 256<<10), "locks")
	b := openFile(t, dir)
	count(t, b, "k", ahead)
	count(t, b, "held", ahead)
	held := take(t, b, "held")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waits, got := make(chan struct{}), make(chan backend.Grant, 1)
	req := request("held", 2)
	req.OnWait = func(*backend.LockedError) { close(waits) }
	go func() {
		defer close(got)
		if g, err := openFile(t, dir).Acquire(ctx, req); err == nil {
			got <- g
		} else {
			t.Error(err)
		}
	}()
	<-waits

	filler := filepath.Join(dir, "filler")
	if err := fillDisk(filler); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "k", "new", "new"} {
		g, err := b.TryAcquire(t.Context(), request(key, 3))
		if g != nil || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, backend.ErrUncertain) {
			t.Fatalf("%s on a full disk: %v, %v", key, g, err)
		}
	}
	most := counter(t, b, "k")
	if most < ahead {
		t.Errorf("the counter fell from %d to %d", ahead, most)
	}
	// what is held can be renewed and released, and is handed to the waiter
	if err := held.Renew(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	release(t, held)
	next := <-got
	if next == nil {
		t.FailNow()
	}
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	release(t, next)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	g := take(t, b, "k")
	if g.Token() <= most {
		t.Errorf("token %d after the counter was %d", g.Token(), most)
	}
	release(t, g)
	release(t, take(t, b, "new"))
	for _, key := range []string{"k", "new", "held"} {
		wantOnlyFence(t, b, key)
	}
}

func fillDisk(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	return err
}

const limitVariable = "LOCK_TEST_FILE_LIMIT" // "bytes folder": be the process below

// TestCounterTorn has a process that can write only the first bytes of a file draw a
// number that differs from the one before in nearly all digits.
func TestCounterTorn(t *testing.T) {
	const old = uint64(1_999_999_999_999_999_999)
	if with := os.Getenv(limitVariable); with != "" {
		tryLimited(t, with)
		return
	}
	dir := t.TempDir()
	b := openFile(t, dir)
	for _, limit := range []int{0, 2, 10, 20, 21, 30, 50} { // the number has 21 bytes, with the note of a grant 63, a ticket more than 50
		count(t, b, "k", old)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCounterTorn$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", limitVariable, limit, dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("limit %d: %v\n%s", limit, err, out)
		}
		most := counter(t, b, "k")
		if most < old {
			t.Errorf("limit %d: the counter fell from %d to %d", limit, old, most)
		}
		g := take(t, b, "k")
		if g.Token() <= most {
			t.Errorf("limit %d: token %d after the counter was %d", limit, g.Token(), most)
		}
		release(t, g)
		wantOnlyFence(t, b, "k")
	}
}

func tryLimited(t *testing.T, with string) {
	limit, dir, _ := strings.Cut(with, " ")
	b := openFile(t, dir)
	signal.Ignore(syscall.SIGXFSZ)
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(limit, &r.Cur); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &r); err != nil {
		t.Fatal(err)
	}
	if g, err := b.TryAcquire(t.Context(), request("k", 4)); g != nil || !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("%v, %v", g, err)
	}
}
