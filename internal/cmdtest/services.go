package cmdtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/clienttest"
)

// Service is a service for locks in a test.
type Service struct {
	Name   string
	URL    string
	server *exec.Cmd // nil for files
}

// Services returns a directory for files, and a Redis server if there is redis-server.
func Services(t *testing.T) []*Service {
	t.Helper()
	out := []*Service{{Name: "file", URL: FileURL(t)}}
	if s := StartRedis(t); s != nil {
		out = append(out, s)
	}
	return out
}

// IsServer reports whether the service is a server.
func (s *Service) IsServer() bool { return s.server != nil }

// Signal sends a signal to the server.
func (s *Service) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.server.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Client opens a client. The program under test imports the drivers.
func (s *Service) Client(t *testing.T) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// FileURL returns a URL of a new directory.
func FileURL(t *testing.T) string { t.Helper(); return "file://" + t.TempDir() }

// RequireRedis is StartRedis, and skips the test without redis-server.
func RequireRedis(t *testing.T) *Service {
	t.Helper()
	s := StartRedis(t)
	if s == nil {
		t.Skip("redis-server is not on the PATH")
	}
	return s
}

// StartRedis starts a server that the test may stop and kill, or returns nil without
// redis-server.
func StartRedis(t *testing.T) *Service {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCK_TEST_REQUIRE") != "" {
			t.Fatal("redis-server is not on the PATH, and LOCK_TEST_REQUIRE is set")
		}
		t.Log("without Redis: redis-server is not on the PATH")
		return nil
	}
	for { // again if another process took the port
		if s := startRedis(t, path, clienttest.FreePort()); s != nil {
			return s
		}
	}
}

// StartRedisAt starts a server, as StartRedis does, at a port that must be free.
func StartRedisAt(t *testing.T, port int) *Service {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	s := startRedis(t, path, port)
	if s == nil {
		t.Fatalf("another process took port %d", port)
	}
	return s
}

func startRedis(t *testing.T, path string, port int) *Service {
	t.Helper()
	cmd := exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	late := time.AfterFunc(Timeout, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var log strings.Builder
	for in := bufio.NewScanner(out); in.Scan(); {
		if strings.Contains(in.Text(), "eady to accept connections") { // this server, not another one at the port
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return &Service{Name: "redis", URL: fmt.Sprintf("redis://127.0.0.1:%d/0", port), server: cmd}
		}
		fmt.Fprintln(&log, in.Text())
	}
	if !strings.Contains(log.String(), "Address already in use") {
		t.Fatalf("redis-server ended: %s", &log)
	}
	return nil
}
