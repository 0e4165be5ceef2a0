//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// absent returns the URL of a service that is not there, and its port.
func absent(t *testing.T) (url string, port int) {
	port = clienttest.FreePort()
	return fmt.Sprintf("redis://127.0.0.1:%d/0", port), port
}

// With --wait-for-service a command runs as soon as the service is there.
func TestWaitForService(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		cmdtest.RequireRedis(t) // skips or fails
	}
	for _, command := range []string{"run", "elect"} {
		t.Run(command, func(t *testing.T) {
			url, port := absent(t)
			r := cmdtest.Begin(t, nil, command, "--url", url, "--wait-for-service", "20s", "x", "--", "echo", "ran")
			r.Stderr.Contains("waiting for the service for up to 20s")
			cmdtest.StartRedisAt(t, port)
			up := time.Now()
			if code := r.Wait(); code != 0 || r.Stdout.All() != "ran\n" {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, r.Stdout.All(), r.Stderr.All())
			}
			if took := time.Since(up); took > 5*time.Second {
				t.Errorf("it ended %v after the service was up", took)
			}
			if n := strings.Count(r.Stderr.All(), "\n"); n != 1 {
				t.Errorf("%d messages, want one: %q", n, r.Stderr.All())
			}
		})
	}
}

// Without a service it ends with 69: at once by default, else after the limit. A wrong URL
// ends it at once.
func TestWaitForServiceEnds(t *testing.T) {
	t.Parallel()
	url, _ := absent(t)
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"run", "--url", url}, lockcmd.ExitUnavailable, "connection refused"},
		{[]string{"run", "--url", url, "--wait-for-service", "300ms"}, lockcmd.ExitUnavailable, "the service did not answer within 300ms: lock: open on redis"},
		{[]string{"elect", "--url", url, "--wait-for-service", "300ms"}, lockcmd.ExitUnavailable, "the service did not answer within 300ms"},
		{[]string{"run", "--url", url + "?tll=3s", "--wait-for-service", "1h"}, lockcmd.ExitUsage, "tll"},
		{[]string{"run", "--url", url, "--wait-for-service", "0"}, lockcmd.ExitUsage, "positive duration"},
	} {
		code, out, stderr := cmdtest.Exec(t, nil, append(c.args, "x", "--", "echo", "ran")...)
		if code != c.code || out != "" || !strings.Contains(stderr, c.text) || strings.Count(stderr, "\n") > 2 { // it says once that it waits
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want code %d and %q", c.args, code, out, stderr, c.code, c.text)
		}
	}
}
