package counter_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/s3lock"
)

// TestSampleService runs examples/service on services that differ in LOCK_URL only: an order that another
// process holds is refused, and another order is shipped.
func TestSampleService(t *testing.T) {
	t.Parallel()
	app := filepath.Join(t.TempDir(), "service")
	if out, err := exec.Command("go", "build", "-race", "-o", app, "github.com/interlock-go/lock/examples/service").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("all", func(t *testing.T) { // so that the binary stays until the last has run
		for _, name := range []string{"memcached", "nats", "s3"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				lockURL := places[name](t)
				c, err := lock.Open(t.Context(), lockURL)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close(context.Background())
				if _, err := c.Mutex("orders/42").Lock(t.Context()); err != nil {
					t.Fatal(err)
				}
				url, stop := serve(t, app, lockURL)
				ship(t, url, "42", http.StatusConflict)
				ship(t, url, "43", http.StatusOK)
				stop()
			})
		}
	})
}

var listening = regexp.MustCompile(`listening addr=(\S+)`)

// serve starts the service, and returns its URL and what ends it.
func serve(t *testing.T, app, lockURL string) (url string, stop func()) {
	t.Helper()
	wait := "?wait=500ms"
	if strings.Contains(lockURL, "?") {
		wait = "&wait=500ms"
	}
	cmd := exec.CommandContext(t.Context(), app)
	cmd.Env = append(os.Environ(), "LOCK_URL="+lockURL+wait, "LISTEN=127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for url == "" && lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			url = "http://" + m[1]
		}
	}
	if url == "" {
		t.Fatalf("the service ended before it listened: %v", cmd.Wait())
	}
	return url, func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, stderr)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: want exit code 0, got %v", err)
		}
	}
}

func ship(t *testing.T, url, order string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders/"+order+"/ship", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body) // it explains a wrong status
	if r.StatusCode != status {
		t.Errorf("order %s: want %d, got %d with %q", order, status, r.StatusCode, body)
	}
}
