//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestTop(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			c := p.Client(t)
			for _, name := range []string{"a/1", "b/1"} {
				l, err := c.Mutex(name, lock.WithMetadata("of "+name)).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Unlock(t.Context()) }()
			}
			waiter := cmdtest.Begin(t, mode("signals"), "run", "-q", "--url", p.URL, "--as", "late", "b/1", "--", self)
			for {
				info, err := c.Inspect(t.Context(), "b/1")
				if err != nil {
					t.Fatal(err)
				}
				if len(info.Waiters) == 1 {
					break
				}
				select {
				case <-waiter.Done:
					t.Fatal(waiter.Stderr.Text())
				case <-time.After(10 * time.Millisecond):
				}
			}
			code, out, stderr := cmdtest.Exec(t, nil, "top", "--url", p.URL, "--once")
			lines := strings.Split(out, "\n")
			if code != 0 || stderr != "" || len(lines) != 5 || !strings.HasPrefix(lines[0], p.Name+": 2 held, 1 waiting, at ") ||
				!strings.HasPrefix(lines[2], "b/1 ") || !strings.HasSuffix(lines[2], "of b/1") || !strings.HasPrefix(lines[3], "a/1 ") {
				t.Errorf("exit code %d, stderr %q:\n%s", code, stderr, out)
			}
			code, out, _ = cmdtest.Exec(t, nil, "top", "--url", p.URL, "--once", "-o", "json", "--prefix", "a/")
			var v struct {
				Time time.Time
				Held []lock.Info
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || strings.Count(out, "\n") != 1 || v.Time.IsZero() || len(v.Held) != 1 || v.Held[0].Name != "a/1" {
				t.Errorf("exit code %d, %v: %s", code, err, out)
			}

			piped := cmdtest.Begin(t, nil, "top", "--url", p.URL, "--interval", "100ms")
			piped.Stdout.Times(p.Name+": 2 held, ", 3)
			if text := piped.Stdout.Text(); strings.Contains(text, "\x1b") || !strings.Contains(text, "\n\n"+p.Name) {
				t.Errorf("piped: %q", text)
			}
			piped.Send(syscall.SIGINT)
			if code := piped.Wait(); code != 0 || piped.Stderr.All() != "" {
				t.Errorf("exit code %d, stderr %q", code, piped.Stderr.Text())
			}
		})
	}
}

func TestTopUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--sort size":    `invalid --sort "size": want one of waited, waiters, held, name`,
		"--interval 1s1": "want a duration from 100ms to 1h",
		"x":              `unexpected argument "x"`,
	} {
		code, out, stderr := cmdtest.Exec(t, nil, append([]string{"top", "--once", "--url", cmdtest.FileURL(t)}, strings.Fields(args)...)...)
		if code != lockcmd.ExitUsage || out != "" || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
	url := fmt.Sprintf("redis://127.0.0.1:%d/0", clienttest.FreePort())
	if code, out, _ := cmdtest.Exec(t, nil, "top", "--once", "--url", url); code != lockcmd.ExitUnavailable || out != "" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
}

// During an outage top says so and continues.
func TestTopOutage(t *testing.T) {
	t.Parallel()
	s := cmdtest.RequireRedis(t)
	r := cmdtest.Begin(t, nil, "top", "--url", s.URL, "--interval", "100ms")
	r.Stdout.Contains("redis: 0 held, 0 waiting, at ")
	s.Signal(t, syscall.SIGSTOP)
	r.Stdout.Contains("redis: no answer at ")
	s.Signal(t, syscall.SIGCONT)
	r.Stdout.Contains(", outages: 1\n")
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != 0 || r.Stderr.All() != "" {
		t.Errorf("exit code %d, stderr %q", code, r.Stderr.Text())
	}
}
