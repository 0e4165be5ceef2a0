package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// serveEnv makes this test binary the service.
const serveEnv = "INTERLOCK_EXAMPLE_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const limit = 20 * time.Second // for what takes milliseconds on an idle machine

// process is a running service.
type process struct {
	*testing.T
	cmd *exec.Cmd
	url string
	log *bufio.Scanner
}

func start(t *testing.T, lockURL string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), serveEnv+"=1", "LOCK_URL="+lockURL, "LISTEN=127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{T: t, cmd: cmd, log: bufio.NewScanner(stderr)}
	p.url = "http://" + p.logged(`listening addr=(\S+)`)[1]
	return p
}

// logged reads the log up to a line that matches.
func (p *process) logged(expr string) []string {
	p.Helper()
	re := regexp.MustCompile(expr)
	for p.log.Scan() {
		if m := re.FindStringSubmatch(p.log.Text()); m != nil {
			return m
		}
	}
	p.Fatalf("the log ended before %s", expr)
	return nil
}

// send returns the status and the body of a reply.
func (p *process) send(method, path string) (int, string) {
	p.Helper()
	req, err := http.NewRequestWithContext(p.Context(), method, p.url+path, nil)
	if err != nil {
		p.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		p.Error(err)
	}
	return r.StatusCode, string(body)
}

func (p *process) want(method, path string, status int, text string) {
	p.Helper()
	if got, body := p.send(method, path); got != status || !strings.Contains(body, text) {
		p.Errorf("%s %s: want %d with %q, got %d with %q", method, path, status, text, got, body)
	}
}

// terminate sends SIGTERM, as an orchestrator does.
func (p *process) terminate() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

func (p *process) wantExit() {
	p.Helper()
	for p.log.Scan() { // Wait closes the pipe
	}
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("after SIGTERM: want exit code 0, got %v", err)
	}
}

func TestService(t *testing.T) {
	for _, url := range []string{"mem:", "file://" + t.TempDir()} {
		p := start(t, url)
		p.want("POST", "/orders/42/ship", 200, "shipped")
		p.want("GET", "/healthz", 200, "ok")
		p.want("GET", "/readyz", 200, "ready")
		p.want("GET", "/metrics", 200, `interlock_lock_wait_duration_seconds_count{interlock_backend=`)
		p.terminate()
		p.wantExit()
	}
}

// A request that waits for a lock is served during a shutdown, and new ones are not.
func TestGracefulShutdown(t *testing.T) {
	url := "file://" + t.TempDir()
	p := start(t, url)
	other, err := lock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	held, err := other.Mutex("orders/42").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status := make(chan int)
	go func() {
		code, _ := p.send("POST", "/orders/42/ship")
		status <- code
	}()
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if _, body := p.send("GET", "/metrics"); regexp.MustCompile(`(?m)^interlock_lock_waiting\{.*\} 1$`).MatchString(body) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("want a request that waits, got the metrics %s", body)
		}
	}
	p.terminate()
	p.logged("shutting down")
	select {
	case code := <-status:
		t.Errorf("the request was answered with %d while the lock is held", code)
	default:
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := <-status; code != 200 {
		t.Errorf("a request that was under way: want 200, got %d", code)
	}
	p.wantExit()
	if code, _ := p.send("GET", "/healthz"); code != 0 {
		t.Errorf("after the shutdown: want no answer, got %d", code)
	}
}

// An order that another process ships is refused when the wait limit of the URL has passed.
func TestOrderIsLocked(t *testing.T) {
	url := "file://" + t.TempDir()
	p := start(t, url+"?wait=50ms")
	other, err := lock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	if _, err := other.Mutex("orders/42").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.want("POST", "/orders/42/ship", 409, "another process")
	p.want("POST", "/orders/43/ship", 200, "shipped")
	p.terminate()
	p.wantExit()
}

// The service starts while its lock service is down, and is alive and not ready.
func TestLockServiceIsDown(t *testing.T) {
	p := start(t, "redis://app:topsecret@127.0.0.1:1/0?wait=50ms")
	p.want("GET", "/healthz", 200, "ok")
	p.want("POST", "/orders/42/ship", 503, "")
	code, body := p.send("GET", "/readyz")
	if code != 503 || body == "" || strings.Contains(body, "topsecret") {
		t.Errorf("readiness: want 503 with an error without the password, got %d with %q", code, body)
	}
	p.terminate()
	p.wantExit()
}

// The URL of the compose file has the parameters of the service's backend.
func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`LOCK_URL: (\S+)`).FindSubmatch(text)
	if m == nil {
		t.Fatal("want a LOCK_URL in compose.yaml")
	}
	c, err := lock.Open(t.Context(), string(m[1]), lock.WithLazyOpen()) // checks the parameters, and connects later
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
