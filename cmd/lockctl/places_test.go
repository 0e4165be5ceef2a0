//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// place is where locks are kept in a test.
type place struct {
	name   string
	url    string
	server *redisServer // nil for a file
}

// places returns a file and a Redis server of the test's own.
func places(t *testing.T) []place {
	t.Helper()
	out := []place{{name: "file", url: fileURL(t)}}
	if s := startRedis(t); s != nil {
		out = append(out, place{"redis", s.url, s})
	}
	return out
}

type redisServer struct {
	url string
	cmd *exec.Cmd
}

func (s *redisServer) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// startRedis starts a server that the test may stop and kill, or returns nil where
// there is no redis-server.
func startRedis(t *testing.T) *redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCK_TEST_REQUIRE") != "" {
			t.Fatal("redis-server is not on the PATH, and LOCK_TEST_REQUIRE is set")
		}
		t.Log("without Redis: redis-server is not on the PATH")
		return nil
	}
	for { // another port if this one is taken before the server has it, which then ends
		port := freePort(t)
		s := &redisServer{
			url: fmt.Sprintf("redis://127.0.0.1:%d/0", port),
			cmd: exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()),
		}
		out, err := s.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		})
		late := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
		defer late.Stop()
		var says strings.Builder
		for in := bufio.NewScanner(out); in.Scan(); {
			if strings.Contains(in.Text(), "eady to accept connections") { // and not whoever else has the port
				go func() { _, _ = io.Copy(io.Discard, out) }()
				return s
			}
			fmt.Fprintln(&says, in.Text())
		}
		if !strings.Contains(says.String(), "Address already in use") {
			t.Fatalf("redis-server ended: %s", &says)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// client opens the place for the test itself.
func (p place) client(t *testing.T) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// awaitHolder waits until a lock is held as wanted.
func awaitHolder(t *testing.T, c *lock.Client, name string, want func(*lock.Holder) bool) (lock.Holder, time.Time) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		asked := time.Now()
		info, err := c.Inspect(t.Context(), name)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if info.Holder != nil && want(info.Holder) {
			return *info.Holder, asked
		}
		if asked.After(deadline) {
			t.Fatalf("%q is not held as it should be: %+v", name, info.Holder)
		}
		time.Sleep(time.Millisecond)
	}
}
