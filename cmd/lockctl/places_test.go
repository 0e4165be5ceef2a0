//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	deadline := time.Now().Add(patience)
	for { // another port if this one is taken before the server has it, which then ends
		port := freePort(t)
		s := &redisServer{
			url: fmt.Sprintf("redis://127.0.0.1:%d/0", port),
			cmd: exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()),
		}
		var says bytes.Buffer
		s.cmd.Stdout = &says
		if err := s.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = s.cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = s.cmd.Process.Kill()
			<-ended
		})
		if s.answers(t, ended, deadline) {
			return s
		}
		<-ended
		if !strings.Contains(says.String(), "Address already in use") {
			t.Fatalf("redis-server ended: %s", &says)
		}
	}
}

// answers waits until the server does, and reports false if it has ended.
func (s *redisServer) answers(t *testing.T, ended <-chan struct{}, deadline time.Time) bool {
	t.Helper()
	for {
		c, err := lock.Open(t.Context(), s.url)
		if err == nil {
			_ = c.Close(t.Context())
		}
		select {
		case <-ended: // whoever answered is another
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if err == nil {
			return true
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
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
