package redislock

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
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
)

// shared is the server of all tests that do not disturb it.
var shared struct {
	once sync.Once
	addr string
	err  error
	stop func()
}

// quiet drops what go-redis says of servers that the tests stop.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
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

// server returns the address of a server that is shared: LOCK_TEST_REDIS_URL, or
// one started from PATH.
func server(t testing.TB) string {
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
		shared.addr, shared.stop, shared.err = start(freePort())
	})
	if shared.err != nil {
		missing(t, shared.err)
	}
	return shared.addr
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("LOCK_TEST_REQUIRE") != "" {
		t.Fatalf("no Redis server: %v", err)
	}
	t.Skipf("no Redis server: %v (set LOCK_TEST_REDIS_URL, or install redis-server)", err)
}

func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start runs a server until stop is called.
func start(port int, args ...string) (addr string, stop func(), err error) {
	return run(port, "Ready to accept", append([]string{"--save", ""}, args...))
}

func startSentinel(port int, conf string) (addr string, stop func(), err error) {
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
	go func() {
		defer close(drained)
		for s := bufio.NewScanner(out); s.Scan(); {
			if strings.Contains(s.Text(), sign) {
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
		return "", nil, fmt.Errorf("redis-server %v did not start", args)
	}
	return fmt.Sprintf("127.0.0.1:%d", port), stop, nil
}

// private starts a server for one test.
func private(t testing.TB, args ...string) string {
	t.Helper()
	addr, stop, err := start(freePort(), args...)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(stop)
	return addr
}

// prefixes are of one test each, so that tests share the server.
var prefixes atomic.Int64

func newPrefix() string {
	return fmt.Sprintf("t%d.%d", os.Getpid(), prefixes.Add(1))
}

func client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

func openURL(t testing.TB, url string) *Backend {
	t.Helper()
	u, err := backend.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := backend.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBackend(t, b.(*Backend)) })
	return b.(*Backend)
}

func closeBackend(t testing.TB, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// newBackend opens a backend on the shared server.
func newBackend(t testing.TB, prefix string) *Backend {
	t.Helper()
	return openURL(t, "redis://"+server(t)+"?prefix="+prefix)
}

func request(key string) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: 10 * time.Second, Metadata: "test " + key[:min(len(key), 100)]}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, 10*time.Second, what, ok)
}

func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func take(t testing.TB, b *Backend, req backend.Request) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), req)
	must(t, err)
	return g
}

type acquired struct {
	g   backend.Grant
	err error
}

// queue starts Acquire and returns when it stands in the queue, and knows it.
func queue(t testing.TB, ctx context.Context, b *Backend, req backend.Request) <-chan acquired {
	t.Helper()
	ch, waits := make(chan acquired, 1), make(chan bool)
	onWait := req.OnWait
	req.OnWait = func(e *backend.LockedError) {
		if onWait != nil {
			onWait(e)
		}
		close(waits)
	}
	go func() {
		g, err := b.Acquire(ctx, req)
		ch <- acquired{g, err}
	}()
	select {
	case <-waits:
	case a := <-ch:
		t.Fatalf("not queued: %+v", a)
	case <-time.After(20 * time.Second):
		t.Fatal("no answer within 20s")
	}
	eventually(t, "the waiter is in the queue", func() bool {
		i, err := b.Inspect(context.Background(), req.Key)
		must(t, err)
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

func get(t testing.TB, ch <-chan acquired) backend.Grant {
	t.Helper()
	return getWithin(t, 20*time.Second, ch)
}

func getWithin(t testing.TB, limit time.Duration, ch <-chan acquired) backend.Grant {
	t.Helper()
	select {
	case a := <-ch:
		must(t, a.err)
		return a.g
	case <-time.After(limit):
		t.Fatalf("no grant within %v", limit)
	}
	return nil
}

// released releases a grant that nobody renews: it may be lost, but not while it lasts.
func released(g backend.Grant) error {
	err := g.Release(context.Background())
	if errors.Is(err, backend.ErrLost) && !time.Now().Before(g.Until()) {
		return nil
	}
	return err
}

// calls reads how often the server executed a command on behalf of clients and scripts.
func calls(t testing.TB, c *redis.Client, names ...string) (n int) {
	t.Helper()
	s, err := c.Info(context.Background(), "commandstats").Result()
	must(t, err)
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
