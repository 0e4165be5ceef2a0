//go:build unix

package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// The test binary runs itself as another process: FILELOCK_HELPER says what to do.
func TestMain(m *testing.M) {
	if what := os.Getenv("FILELOCK_HELPER"); what != "" {
		if err := helper(what, os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(what string, args []string) error {
	ctx := context.Background()
	b, err := New(args[0])
	if err != nil {
		return err
	}
	switch what {
	case "hold": // DIR KEY [WEIGHT CAPACITY]: take the lock or a share, release it on a line of input
		req := request(args[1])
		if len(args) > 2 {
			req.Share.Weight, _ = strconv.Atoi(args[2])
			req.Share.Capacity, _ = strconv.Atoi(args[3])
		}
		req.Metadata = "helper " + strconv.Itoa(os.Getpid())
		req.OnWait = func(*backend.LockedError) { fmt.Println("waiting") }
		req.OnLost = func(error) { fmt.Println("lost") }
		g, err := b.Acquire(ctx, req)
		if err != nil {
			return err
		}
		fmt.Println("held", g.Token())
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
		if err := g.Release(ctx); err != nil {
			return err
		}
		fmt.Println("released")
		return b.Close(ctx)
	case "count": // DIR KEY FILE N: read, add one, write
		n, _ := strconv.Atoi(args[3])
		for range n {
			g, err := b.Acquire(ctx, request(args[1]))
			if err != nil {
				return err
			}
			if err := addOne(args[2], g.Token()); err != nil {
				return err
			}
			if err := g.Release(ctx); err != nil {
				return err
			}
		}
		return b.Close(ctx)
	case "churn": // DIR KEY WEIGHT CAPACITY: acquire and release a share without an end
		fmt.Println("begun")
		for {
			req := request(args[1])
			req.Share.Weight, _ = strconv.Atoi(args[2])
			req.Share.Capacity, _ = strconv.Atoi(args[3])
			g, err := b.Acquire(ctx, req)
			if err != nil {
				return err
			}
			if err := g.Release(ctx); err != nil {
				return err
			}
		}
	case "full": // DIR KEY BYTES: try with a limit on file sizes, as on a full disk
		n, _ := strconv.ParseUint(args[2], 10, 64)
		signal.Ignore(syscall.SIGXFSZ)
		limit := syscall.Rlimit{}
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		set(&limit.Cur, n)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		_, err := b.TryAcquire(ctx, request(args[1]))
		if !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("want EFBIG, got %v", err)
		}
		if n := len(b.tickets); n != 0 {
			return fmt.Errorf("%d tickets left", n)
		}
		fmt.Println("refused")
		return nil
	}
	return fmt.Errorf("unknown helper %q", what)
}

// set assigns to a limit, which is signed on some systems.
func set[T int64 | uint64](to *T, n uint64) { *to = T(n) }

// addOne is a read-modify-write that loses updates unless it is alone. The file
// holds the count and the last token, which must rise.
func addOne(path string, token uint64) error {
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var count int
	var last uint64
	_, _ = fmt.Sscan(string(content), &count, &last)
	if token <= last {
		return fmt.Errorf("token %d after %d", token, last)
	}
	runtime.Gosched()
	return os.WriteFile(path, fmt.Appendf(nil, "%d %d", count+1, token), 0o600)
}

// process is a helper that runs.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan string
}

func start(t *testing.T, what string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe, args...), out: make(chan string, 16)}
	p.cmd.Env = append(os.Environ(), "FILELOCK_HELPER="+what)
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.out)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.out <- s.Text()
		}
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process with SIGKILL and waits for that.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

const timeout = 20 * time.Second

func (p *process) expect(t *testing.T, word string) uint64 {
	t.Helper()
	select {
	case line := <-p.out:
		first, rest, _ := strings.Cut(line, " ")
		if first != word {
			t.Fatalf("a helper said %q, want %q", line, word)
		}
		n, _ := strconv.ParseUint(rest, 10, 64)
		return n
	case <-time.After(timeout):
		t.Fatalf("a helper did not say %q", word)
	}
	panic("unreachable")
}

var owners atomic.Uint64

func request(key string) backend.Request {
	return backend.Request{Key: key, Owner: fmt.Sprintf("%016x%016x", os.Getpid(), owners.Add(1)), TTL: time.Minute}
}

func open1(t testing.TB, dir string, opts ...Option) *Backend {
	t.Helper()
	b, err := New(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

func try(t testing.TB, b *Backend, key string) backend.Grant {
	t.Helper()
	return tryShare(t, b, key, backend.Share{})
}

func tryShare(t testing.TB, b *Backend, key string, s backend.Share) backend.Grant {
	t.Helper()
	req := request(key)
	req.Share = s
	g, err := b.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func release(t testing.TB, g backend.Grant) {
	t.Helper()
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want %v", err, target)
	}
}

// queue starts an Acquire and returns when it waits.
func queue(t testing.TB, ctx context.Context, b *Backend, key string) chan outcome {
	t.Helper()
	return queueShare(t, ctx, b, key, backend.Share{})
}

func queueShare(t testing.TB, ctx context.Context, b *Backend, key string, s backend.Share) chan outcome {
	t.Helper()
	req := request(key)
	req.Share = s
	waiting := make(chan struct{})
	req.OnWait = func(*backend.LockedError) { close(waiting) }
	out := make(chan outcome, 1)
	go func() {
		g, err := b.Acquire(ctx, req)
		out <- outcome{g, err}
	}()
	select {
	case <-waiting:
	case o := <-out:
		t.Fatalf("not queued: %v, %v", o.g, o.err)
	case <-time.After(timeout):
		t.Fatal("not queued in time")
	}
	return out
}

type outcome struct {
	g   backend.Grant
	err error
}

func served(t testing.TB, out chan outcome) backend.Grant {
	t.Helper()
	select {
	case o := <-out:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.g
	case <-time.After(timeout):
		t.Fatal("not served in time")
	}
	panic("unreachable")
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// wantNoTickets checks that a lock's directory holds nothing but its counter.
func wantNoTickets(t testing.TB, b *Backend, key string) {
	t.Helper()
	dir, err := b.Path(key)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != fenceFile {
			t.Errorf("left behind: %s", filepath.Join(dir, e.Name()))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.tickets); n != 0 {
		t.Errorf("%d tickets are still known", n)
	}
}

func fds(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	return len(entries)
}
