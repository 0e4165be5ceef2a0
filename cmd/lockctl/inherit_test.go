//go:build unix

package main

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/cmdtest"
)

// With files the children of the command keep the lock if lockctl is killed, until the last of them has ended. If
// lockctl is not killed, the lock is free when the command ends, whatever it has left behind.
func TestCommandKeepsTheLock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, params string
		kill, held   bool
	}{
		{"killed", "", true, true},
		{"killed, with parameters", "?prefix=a", true, true},
		{"killed, switched off", "?inherit=false", true, false},
		{"ended", "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := cmdtest.FileURL(t) + tt.params
			end := filepath.Join(t.TempDir(), "end")
			if err := syscall.Mkfifo(end, 0o600); err != nil {
				t.Fatal(err)
			}
			// The child blocks until a writer opens the pipe, and has no stdout that the test waits for.
			script := `cat <"$0" >/dev/null 2>&1 & echo "child $!"; read line`
			r := cmdtest.Begin(t, nil, "run", "--url", url, "--ttl", "1s", "x", "--", "sh", "-c", script, end)
			r.Stdout.Contains("child ")
			line := strings.TrimSpace(r.Stdout.Text())
			child, err := strconv.Atoi(strings.TrimPrefix(line, "child "))
			if err != nil {
				t.Fatalf("output %q: %v", line, err)
			}
			t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
			if tt.kill {
				r.Send(syscall.SIGKILL)
			} else {
				r.Send(syscall.SIGTERM)
			}
			r.Wait()
			c, err := lock.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(t.Context())
			m := c.Mutex("x")
			if tt.held {
				if _, err := m.TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
					t.Fatalf("while a child of the command runs: want ErrLocked, got %v", err)
				}
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			l, err := m.Lock(t.Context())
			if err != nil {
				t.Fatalf("want the lock free, got %v", err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
