//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// times waits until a word was written n times.
func (o *tail) times(s string, n int) {
	o.t.Helper()
	o.until(fmt.Sprintf("%d times %q", n, s), func(text string, _ bool) bool { return strings.Count(text, s) >= n })
}

// One leads, and says who it is; when it is told to end, or is killed, the other leads.
func TestElectHandover(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		for name, sig := range map[string]syscall.Signal{"resign": syscall.SIGTERM, "kill": syscall.SIGKILL} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				ttl := "1m"
				if sig == syscall.SIGKILL {
					ttl = "5s" // what the other waits for
				}
				candidate := func(as string) *run {
					return begin(t, does("signals"), "elect", "--url", p.url, "--ttl", ttl, "--grace", "0", "--as", as, name, "--", self)
				}
				one := candidate("one:80")
				one.stdout.contains("ready")
				two := candidate("two:80")
				two.stderr.contains(fmt.Sprintf("waiting for %q: held by one:80", name))
				if two.stdout.text() != "" {
					t.Fatalf("two lead: %q", two.stdout.text())
				}
				one.send(sig)
				two.stdout.contains("ready")
				awaitHolder(t, p.client(t), name, func(h *lock.Holder) bool { return h.Metadata == "two:80" })
				if code := one.wait(); sig == syscall.SIGTERM && (code != 3 || one.stderr.all() != "") {
					t.Errorf("exit code %d, stderr %q", code, one.stderr.text())
				}
				two.send(syscall.SIGTERM)
				if code := two.wait(); code != 3 || strings.Count(two.stdout.all(), "ready") != 1 {
					t.Errorf("exit code %d, stdout %q", code, two.stdout.text())
				}
			})
		}
	}
}

// A leader whose lock is broken has its command ended, and leads again in time.
func TestElectAgainAfterABreak(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			r := begin(t, does("signals"), "elect", "--url", p.url, "x", "--", self)
			for term := 1; term <= 3; term++ {
				r.stdout.times("ready", term)
				if term == 3 {
					break
				}
				if code, out, stderr := lockctl(t, nil, "break", "--url", p.url, "--yes", "x"); code != 0 || !strings.Contains(out, "taken from ") {
					t.Fatalf("break: exit code %d, stdout %q, stderr %q", code, out, stderr)
				}
			}
			r.send(syscall.SIGTERM)
			if code := r.wait(); code != 3 {
				t.Errorf("exit code %d", code)
			}
			if n := strings.Count(r.stderr.all(), `campaigning for "x" again`); n != 2 {
				t.Errorf("stderr %q", r.stderr.text())
			}
			if want := strings.Repeat("ready\nterminated\n", 3); r.stdout.all() != want {
				t.Errorf("stdout %q", r.stdout.text())
			}
		})
	}
}

// A leader that cannot renew has its command dead before the service can let another
// lead, and campaigns again when the service is back.
func TestElectAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	onTime(t, func() (wrong string, late time.Duration) {
		s := startRedis(t)
		if s == nil {
			t.Skip("redis-server is not on the PATH")
		}
		const ttl = 3 * time.Second
		env, dead := watch(t, 1)
		r := begin(t, append(does("stubborn"), env), "elect", "--url", s.url, "--ttl", ttl.String(), "x", "--", self)
		r.stdout.contains("ready")
		c := place{url: s.url}.client(t)
		awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left < ttl*8/10 })
		worst := lateness(t)
		h, asked := awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
		s.signal(t, syscall.SIGSTOP)
		over := dead().Sub(asked.Add(h.Left))
		late = worst()
		if over >= 0 {
			wrong = fmt.Sprintf("the command died %v after another could lead", over)
		}
		s.signal(t, syscall.SIGCONT)
		r.stdout.times("ready", 2)
		again, _ := awaitHolder(t, c, "x", heldByAny)
		if again.Token <= h.Token {
			t.Errorf("token %d after %d", again.Token, h.Token)
		}
		return wrong, late
	})
}

func TestElectEnds(t *testing.T) {
	t.Parallel()
	free, taken := fileURL(t), fileURL(t)
	holder := begin(t, does("stubborn"), "run", "--url", taken, "x", "--", self)
	holder.stdout.contains("ready")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"the command's code", []string{"--url", free, "x", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"a code that is like lockctl's", []string{"--url", free, "x", "--", "sh", "-c", "exit 76"}, 76, ""},
		{"not found", []string{"--url", free, "x", "--", "does-not-exist-anywhere"}, codeNotFound, "does-not-exist"},
		{"nobody listens", []string{"--url", fmt.Sprintf("redis://127.0.0.1:%d/0", freePort(t)), "x", "--", "true"}, codeUnavailable, "127.0.0.1:"},
		{"no dash", []string{"--url", free, "x", "true"}, codeUsage, `no "--"`},
		{"empty name", []string{"--url", free, "", "--", "true"}, codeUsage, `invalid name "": want 1 to`},
		{"long --as", []string{"--url", free, "--as", strings.Repeat("x", 257), "x", "--", "true"}, codeUsage, "metadata"},
		{"no --wait", []string{"--url", free, "--wait", "0", "x", "--", "true"}, codeUsage, "--wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := lockctl(t, nil, append([]string{"elect"}, c.args...)...)
			if code != c.code || out != "" || c.says == "" && stderr != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q; want code %d and %q", code, out, stderr, c.code, c.says)
			}
		})
	}
	r := begin(t, nil, "elect", "--url", taken, "x", "--", "echo", "ran")
	r.stderr.contains("waiting for")
	r.send(syscall.SIGTERM)
	if code := r.wait(); code != 128+15 || r.stdout.all() != "" {
		t.Errorf("ended while waiting: exit code %d, stdout %q", code, r.stdout.text())
	}
}
