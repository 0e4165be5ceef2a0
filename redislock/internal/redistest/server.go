// Package redistest has servers, a proxy and small helpers for the tests of redislock and redlock.
package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/clienttest"
)

// shared is the server of all tests that do not disturb it.
var shared struct {
	once sync.Once
	addr string
	err  error
	stop func()
}

// quiet drops the log of go-redis about servers that the tests stop.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// Main runs the tests of a package, and fails if a goroutine is left.
func Main(m *testing.M) {
	redis.SetLogger(quiet{})
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Server returns the address of a server that is shared: LOCK_TEST_REDIS_URL, or
// one started from PATH.
func Server(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if url := os.Getenv("LOCK_TEST_REDIS_URL"); url != "" {
			u, err := backend.ParseURL(url)
			if err != nil || len(u.Hosts) != 1 || u.User != nil {
				shared.err = fmt.Errorf("LOCK_TEST_REDIS_URL: want redis://host:port without a user")
				return
			}
			shared.addr = u.Hosts[0]
			return
		}
		shared.addr, shared.stop, shared.err = Start(clienttest.FreePort())
	})
	if shared.err != nil {
		Missing(t, shared.err)
	}
	return shared.addr
}

// Missing skips the test, or fails it where a server is required.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("LOCK_TEST_REQUIRE") != "" {
		t.Fatalf("no Redis server: %v", err)
	}
	t.Skipf("no Redis server: %v (set LOCK_TEST_REDIS_URL, or install redis-server)", err)
}

// Start runs a server until stop is called.
func Start(port int, args ...string) (addr string, stop func(), err error) {
	return run(port, "Ready to accept", append([]string{"--save", ""}, args...))
}

// StartSentinel runs a sentinel until stop is called.
func StartSentinel(port int, conf string) (addr string, stop func(), err error) {
	return run(port, "monitor master", []string{conf, "--sentinel"})
}

func run(port int, sign string, args []string) (addr string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "redislock")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(path, append(args, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	ready, drained := make(chan bool, 1), make(chan struct{})
	last := "" // line of the output
	go func() {
		defer close(drained)
		for s := bufio.NewScanner(out); s.Scan(); {
			if last = s.Text(); strings.Contains(last, sign) {
				ready <- true
			}
		}
		close(ready)
	}()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
		os.RemoveAll(dir)
	})
	if !<-ready {
		stop()
		return "", nil, fmt.Errorf("redis-server %v did not start: %s", args, last)
	}
	return fmt.Sprintf("127.0.0.1:%d", port), stop, nil
}

// Private starts a server for one test.
func Private(t testing.TB, args ...string) string {
	t.Helper()
	addr, stop, err := Start(clienttest.FreePort(), args...)
	if err != nil {
		Missing(t, err)
	}
	t.Cleanup(stop)
	return addr
}

// prefixes counts the prefixes: each test has its own on the shared server.
var prefixes atomic.Int64

// NewPrefix returns a prefix for one test.
func NewPrefix() string {
	return fmt.Sprintf("t%d.%d", os.Getpid(), prefixes.Add(1))
}

// Client returns a client of the server.
func Client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// Open opens a URL, and closes the backend when the test ends.
func Open(t testing.TB, url string) backend.Backend {
	t.Helper()
	u, err := backend.ParseURL(url)
	Must(t, err)
	b, err := backend.Open(t.Context(), u)
	Must(t, err)
	t.Cleanup(func() { Close(t, b) })
	return b
}

// Close closes a backend, and waits for it.
func Close(t testing.TB, b backend.Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Request returns the request of a new attempt.
func Request(key string) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: 10 * time.Second, Metadata: "test " + key[:min(len(key), 100)]}
}

// Eventually waits until ok returns true, for 10 s.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, 10*time.Second, what, ok)
}

// Within waits until ok returns true, for limit at most.
func Within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Take acquires a free key.
func Take(t testing.TB, b backend.Backend, req backend.Request) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), req)
	Must(t, err)
	return g
}

// Acquired is the result of Acquire.
type Acquired struct {
	Grant backend.Grant
	Err   error
}

// Waiter is a backend with a queue.
type Waiter interface {
	backend.Waiter
	backend.Inspector
}

// Queue starts Acquire and returns when the attempt is in the queue and OnWait was called.
func Queue(ctx context.Context, t testing.TB, b Waiter, req backend.Request) <-chan Acquired {
	t.Helper()
	ch, waits := make(chan Acquired, 1), make(chan bool)
	onWait := req.OnWait
	req.OnWait = func(e *backend.LockedError) {
		if onWait != nil {
			onWait(e)
		}
		close(waits)
	}
	go func() {
		g, err := b.Acquire(ctx, req)
		ch <- Acquired{g, err}
	}()
	select {
	case <-waits:
	case a := <-ch:
		t.Fatalf("not queued: %+v", a)
	case <-time.After(20 * time.Second):
		t.Fatal("no answer within 20s")
	}
	Eventually(t, "the waiter is in the queue", func() bool {
		i, err := b.Inspect(context.Background(), req.Key)
		Must(t, err)
		for _, w := range i.Waiters {
			if w.Owner == req.Owner {
				return true
			}
		}
		select {
		case a := <-ch:
			t.Fatalf("not queued: %+v", a)
		default:
		}
		return false
	})
	return ch
}

// Get returns the grant that a Queue waits for.
func Get(t testing.TB, ch <-chan Acquired) backend.Grant {
	t.Helper()
	return GetWithin(t, 20*time.Second, ch)
}

// GetWithin is Get with a time limit.
func GetWithin(t testing.TB, limit time.Duration, ch <-chan Acquired) backend.Grant {
	t.Helper()
	select {
	case a := <-ch:
		Must(t, a.Err)
		return a.Grant
	case <-time.After(limit):
		t.Fatalf("no grant within %v", limit)
	}
	return nil
}

// Released releases a grant that is not renewed: ErrLost is accepted after its Until only.
func Released(g backend.Grant) error {
	err := g.Release(context.Background())
	if errors.Is(err, backend.ErrLost) && !time.Now().Before(g.Until()) {
		return nil
	}
	return err
}

// Calls reads how often the server executed a command on behalf of clients and scripts.
func Calls(t testing.TB, c *redis.Client, names ...string) (n int) {
	t.Helper()
	s, err := c.Info(context.Background(), "commandstats").Result()
	Must(t, err)
	for l := range strings.Lines(s) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(l), "cmdstat_"), ":calls=")
		for _, want := range names {
			if name == want {
				k, _, _ := strings.Cut(rest, ",")
				v, _ := strconv.Atoi(k)
				n += v
			}
		}
	}
	return n
}
