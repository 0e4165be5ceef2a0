package etcdlock

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/interlock-go/lock/backend"
)

// shared is the server of all tests that do not stop or fill it.
var shared struct {
	once sync.Once
	addr string
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// server returns the address of the shared server: LOCK_TEST_ETCD_ADDR, or one
// started from the PATH or from .bin.
func server(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.addr = os.Getenv("LOCK_TEST_ETCD_ADDR"); shared.addr == "" {
			shared.addr, shared.stop, shared.err = start()
		}
	})
	if shared.err != nil {
		missing(t, shared.err)
	}
	return shared.addr
}

func missing(t testing.TB, err error) {
	t.Helper()
	for want := range strings.SplitSeq(os.Getenv("LOCK_TEST_REQUIRE"), ",") {
		if want = strings.TrimSpace(want); want == "all" || want == "etcd" {
			t.Fatalf("no etcd server: %v", err)
		}
	}
	t.Skipf("no etcd server: %v (hack/setup.sh provides it, or set LOCK_TEST_ETCD_ADDR)", err)
}

// privately starts a server for one test.
func privately(t *testing.T, args ...string) string {
	t.Helper()
	addr, stop, err := start(args...)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(stop)
	return addr
}

func start(args ...string) (addr string, stop func(), err error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		if path, err = exec.LookPath(filepath.Join("..", ".bin", "etcd")); err != nil {
			return "", nil, err
		}
	}
	dir, err := os.MkdirTemp("", "etcdlock")
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = l.Addr().String()
	_ = l.Close()
	cmd := exec.Command(path, append([]string{
		"--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr, "--listen-peer-urls", "http://127.0.0.1:0",
		"--data-dir", dir, "--unsafe-no-fsync", "--log-level", "error",
	}, args...)...)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		res, err := http.Get("http://" + addr + "/health")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return addr, stop, nil
			}
		}
		if time.Now().After(end) {
			stop()
			return "", nil, fmt.Errorf("etcd did not serve within 30 s: %v", err)
		}
	}
}

func client(t testing.TB, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newBackend returns a backend whose prefix is the name of the test.
func newBackend(t testing.TB, addr string, opts ...Option) *Backend {
	t.Helper()
	b, err := New(client(t, addr), append([]Option{WithPrefix(t.Name())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func request(key string, ttl time.Duration) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: ttl, Metadata: "test"}
}

// held is a grant with what it is of.
type held struct {
	backend.Grant
	key string // at the servers
}

func (h *held) Slots() []int { return h.Grant.(backend.SlotHolder).Slots() }

func (h *held) Downgrade(ctx context.Context) error {
	return h.Grant.(backend.Downgrader).Downgrade(ctx)
}

func try(t testing.TB, b *Backend, req backend.Request) *held {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return heldBy(b, req, g)
}

func heldBy(b *Backend, req backend.Request, g backend.Grant) *held {
	p, _ := b.Place(req.Owner)
	return &held{g, p.ID}
}

func requestShare(key string, weight, capacity int) backend.Request {
	req := request(key, time.Minute)
	req.Share = backend.Share{Weight: weight, Capacity: capacity}
	return req
}

func reader(key string) backend.Request { return requestShare(key, 1, 0) }

func inspect(t *testing.T, b *Backend, key string) backend.Info {
	t.Helper()
	i, err := b.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// outcome is the result of an Acquire in another goroutine.
type outcome struct {
	g   backend.Grant
	err error
}

// waiting starts an Acquire and returns when it waits.
func waiting(t testing.TB, ctx context.Context, b *Backend, req backend.Request) <-chan outcome {
	t.Helper()
	waits, out := make(chan struct{}, 1), make(chan outcome, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		g, err := b.Acquire(ctx, req)
		out <- outcome{g, err}
	}()
	select {
	case <-waits:
	case o := <-out:
		t.Fatalf("want it to wait: %v, %v", o.g, o.err)
	case <-time.After(soon):
		t.Fatal("did not begin to wait")
	}
	return out
}

const soon = 20 * time.Second

func granted(t testing.TB, out <-chan outcome) backend.Grant {
	t.Helper()
	select {
	case o := <-out:
		if o.err != nil {
			t.Fatal(o.err)
		}
		return o.g
	case <-time.After(soon):
		t.Fatal("not granted")
	}
	return nil
}

func release(t testing.TB, g backend.Grant) {
	t.Helper()
	if err := g.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok returns true, and fails with what if it never does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// losable returns a request, and a channel that receives the loss of its grant.
func losable(key string, ttl time.Duration) (backend.Request, <-chan error) {
	lost := make(chan error, 10)
	req := request(key, ttl)
	req.OnLost = func(err error) { lost <- err }
	return req, lost
}

// serverWatches returns the number of watches at the server.
func serverWatches(t *testing.T, addr string) int {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "etcd_debugging_mvcc_watcher_total "); ok {
			n := 0
			if _, err := fmt.Sscan(v, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the metrics of the server have no number of watches")
	return 0
}
