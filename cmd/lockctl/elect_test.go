//go:build unix

package main

import (
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

// One candidate leads, and inspect shows its --as. When it resigns or is killed, the other
// candidate leads.
func TestElectHandover(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		for name, sig := range map[string]syscall.Signal{"resign": syscall.SIGTERM, "kill": syscall.SIGKILL} {
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				ttl := "1m"
				if sig == syscall.SIGKILL {
					ttl = "5s" // the other candidate waits for its end
				}
				candidate := func(as string) *cmdtest.Run {
					return cmdtest.Begin(t, mode("signals"), "elect", "--url", p.URL, "--ttl", ttl, "--grace", "0", "--as", as, name, "--", self)
				}
				one := candidate("one:80")
				one.Stdout.Contains("ready")
				two := candidate("two:80")
				two.Stderr.Contains(fmt.Sprintf("waiting for %q: held by one:80", name))
				if two.Stdout.Text() != "" {
					t.Fatalf("two lead: %q", two.Stdout.Text())
				}
				one.Send(sig)
				two.Stdout.Contains("ready")
				awaitHolder(t, p.Client(t), name, func(h *lock.Holder) bool { return h.Metadata == "two:80" })
				if code := one.Wait(); sig == syscall.SIGTERM && (code != 3 || one.Stderr.All() != "") {
					t.Errorf("exit code %d, stderr %q", code, one.Stderr.Text())
				}
				two.Send(syscall.SIGTERM)
				if code := two.Wait(); code != 3 || strings.Count(two.Stdout.All(), "ready") != 1 {
					t.Errorf("exit code %d, stdout %q", code, two.Stdout.Text())
				}
			})
		}
	}
}

// After a break the command of the leader is ended, and the leader campaigns again.
func TestElectAgainAfterABreak(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			r := cmdtest.Begin(t, mode("signals"), "elect", "--url", p.URL, "x", "--", self)
			for term := 1; term <= 3; term++ {
				r.Stdout.Times("ready", term)
				if term == 3 {
					break
				}
				if code, out, stderr := cmdtest.Exec(t, nil, "break", "--url", p.URL, "--yes", "x"); code != 0 || !strings.Contains(out, "taken from ") {
					t.Fatalf("break: exit code %d, stdout %q, stderr %q", code, out, stderr)
				}
			}
			r.Send(syscall.SIGTERM)
			if code := r.Wait(); code != 3 {
				t.Errorf("exit code %d", code)
			}
			if n := strings.Count(r.Stderr.All(), `campaigning for "x" again`); n != 2 {
				t.Errorf("stderr %q", r.Stderr.Text())
			}
			if want := strings.Repeat("ready\nterminated\n", 3); r.Stdout.All() != want {
				t.Errorf("stdout %q", r.Stdout.Text())
			}
		})
	}
}

// The command of a leader that cannot renew is dead before another candidate can lead. The
// leader campaigns again when the service is back.
func TestElectAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	onTime(t, func() (wrong string, late time.Duration) {
		s := cmdtest.RequireRedis(t)
		const ttl = 3 * time.Second
		env, dead := watchDeath(t, 1)
		r := cmdtest.Begin(t, append(mode("stubborn"), env), "elect", "--url", s.URL, "--ttl", ttl.String(), "x", "--", self)
		r.Stdout.Contains("ready")
		c := s.Client(t)
		awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left < ttl*8/10 })
		worst := lateness(t)
		h, asked := awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
		s.Signal(t, syscall.SIGSTOP)
		over := dead().Sub(asked.Add(h.Left))
		late = worst()
		if over >= 0 {
			wrong = fmt.Sprintf("the command died %v after another could lead", over)
		}
		s.Signal(t, syscall.SIGCONT)
		r.Stdout.Times("ready", 2)
		again, _ := awaitHolder(t, c, "x", heldByAny)
		if again.Token <= h.Token {
			t.Errorf("token %d after %d", again.Token, h.Token)
		}
		return wrong, late
	})
}

func TestElectEnds(t *testing.T) {
	t.Parallel()
	free, taken := cmdtest.FileURL(t), cmdtest.FileURL(t)
	holder := cmdtest.Begin(t, mode("stubborn"), "run", "--url", taken, "x", "--", self)
	holder.Stdout.Contains("ready")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"the command's code", []string{"--url", free, "x", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"a code that is like lockctl's", []string{"--url", free, "x", "--", "sh", "-c", "exit 76"}, 76, ""},
		{"not found", []string{"--url", free, "x", "--", "does-not-exist-anywhere"}, lockcmd.ExitNotFound, "does-not-exist"},
		{"no dash", []string{"--url", free, "x", "true"}, lockcmd.ExitUsage, `no "--"`},
		{"empty name", []string{"--url", free, "", "--", "true"}, lockcmd.ExitUsage, `invalid name "": want 1 to`},
		{"long --as", []string{"--url", free, "--as", strings.Repeat("x", 257), "x", "--", "true"}, lockcmd.ExitUsage, "metadata"},
		{"no --wait", []string{"--url", free, "--wait", "0", "x", "--", "true"}, lockcmd.ExitUsage, "--wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := cmdtest.Exec(t, nil, append([]string{"elect"}, c.args...)...)
			if code != c.code || out != "" || c.says == "" && stderr != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want code %d and %q", code, out, stderr, c.code, c.says)
			}
		})
	}
	noServer := fmt.Sprintf("redis://127.0.0.1:%d/0", clienttest.FreePort())
	r := cmdtest.Begin(t, nil, "elect", "--url", noServer, "x", "--", "true")
	r.Stderr.Times(`campaigning for "x" again`, 2)
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != 128+15 || !strings.Contains(r.Stderr.Text(), "127.0.0.1:") {
		t.Errorf("no server at the start: exit code %d, stderr %q", code, r.Stderr.Text())
	}
	r = cmdtest.Begin(t, nil, "elect", "--url", taken, "x", "--", "echo", "ran")
	r.Stderr.Contains("waiting for")
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != 128+15 || r.Stdout.All() != "" {
		t.Errorf("ended while waiting: exit code %d, stdout %q", code, r.Stdout.Text())
	}
}
