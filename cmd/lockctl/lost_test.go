//go:build unix

package main

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func heldByAny(*lock.Holder) bool { return true }

// A broken lock ends its command, and what that has started, even if they ignore TERM.
func TestBreakEndsTheCommand(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		// No renewal comes while anybody is patient: the loss must be pushed. Elsewhere than
		// on Linux a file tells nothing.
		ttl := "2m"
		if p.server == nil && runtime.GOOS != "linux" {
			ttl = "10s"
		}
		for _, how := range []string{"stubborn", "parent"} {
			t.Run(p.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				env, dead := watch(t, members(how))
				r := begin(t, append(does(how), env), "run", "--url", p.url, "--ttl", ttl, "--grace", "1s", how, "--", self)
				r.stdout.contains("ready")
				if code, out, stderr := lockctl(t, nil, "break", "--url", p.url, "--yes", how); code != 0 || !strings.Contains(out, "taken from pid ") {
					t.Fatalf("break: exit code %d, stdout %q, stderr %q", code, out, stderr)
				}
				if code := r.wait(); code != codeLost {
					t.Fatalf("exit code %d, stderr %q", code, r.stderr.text())
				}
				dead() // fails if a part of the command goes on
				if !strings.Contains(r.stdout.all(), "terminated") {
					t.Errorf("nobody was told to end: %q", r.stdout.text())
				}
				if !strings.Contains(r.stderr.all(), "ending the command") {
					t.Errorf("stderr %q", r.stderr.text())
				}
			})
		}
	}
}

// A command whose lock cannot be renewed is dead before the service can grant the
// lock to anybody else, though it ignores TERM.
func TestLostCommandIsDeadBeforeTheTTLEnds(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"stopped server": syscall.SIGSTOP, "killed server": syscall.SIGKILL} {
		for _, how := range []string{"stubborn", "parent"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				onTime(t, func() (wrong string, late time.Duration) {
					s := startRedis(t)
					if s == nil {
						t.Skip("redis-server is not on the PATH")
					}
					const ttl = 3 * time.Second
					env, dead := watch(t, members(how))
					r := begin(t, append(does(how), env), "run", "--url", s.url, "--ttl", ttl.String(), "x", "--", self)
					r.stdout.contains("ready")
					c := place{url: s.url}.client(t)
					// just renewed, so that no renewal can come between this answer and the failure
					awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left < ttl*8/10 })
					worst := lateness(t)
					h, asked := awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
					s.signal(t, sig)
					expires := asked.Add(h.Left)

					if code := r.wait(); code != codeLost {
						t.Fatalf("exit code %d, stderr %q", code, r.stderr.text())
					}
					left := expires.Sub(dead())
					late = worst()
					switch {
					case left <= 0:
						wrong = fmt.Sprintf("the command died %v after its TTL", -left)
					case !strings.Contains(r.stdout.all(), "terminated"):
						wrong = fmt.Sprintf("it was not told to end first: %q", r.stdout.text())
					default:
						t.Logf("dead %v before the end of the TTL", left)
					}
					return wrong, late
				})
			})
		}
	}
}

// An outage that ends in time costs nothing.
func TestShortOutageIsRiddenOut(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	if s == nil {
		t.Skip("redis-server is not on the PATH")
	}
	const ttl = 6 * time.Second
	// without a grace there is most time for the renewal that comes after the outage
	r := begin(t, does("signals"), "run", "--url", s.url, "--ttl", ttl.String(), "--grace", "0", "x", "--", self)
	r.stdout.contains("ready")
	c := place{url: s.url}.client(t)
	awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
	s.signal(t, syscall.SIGSTOP)
	time.Sleep(ttl * 4 / 10) // the length of the outage, past the renewal that was due
	s.signal(t, syscall.SIGCONT)
	awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
	r.send(syscall.SIGTERM)
	if code := r.wait(); code != 3 || r.stderr.all() != "" {
		t.Fatalf("exit code %d, stderr %q", code, r.stderr.text())
	}
}

// When lockctl is killed its lock becomes free, at once or with its TTL, and on
// Linux its command is killed.
func TestKilledLockctl(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			const ttl = 4 * time.Second
			env, dead := watch(t, 1)
			r := begin(t, append(does("stubborn"), env), "run", "--url", p.url, "--ttl", ttl.String(), "--grace", "0", "x", "--", self)
			r.stdout.contains("ready")
			killed := time.Now()
			r.send(syscall.SIGKILL)
			if runtime.GOOS == "linux" {
				dead() // fails if the command goes on
			}
			code, _, stderr := lockctl(t, nil, "run", "--url", p.url, "--ttl", ttl.String(), "--wait", "10s", "x", "--", "true")
			if code != 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			t.Logf("taken again %v after the kill", time.Since(killed))
			if p.server == nil {
				r.wait()
				if code, _, stderr := lockctl(t, nil, "run", "--url", p.url, "--wait", "0", "x", "--", "true"); code != 0 {
					t.Errorf("not free at once: exit code %d, stderr %q", code, stderr)
				}
			}
		})
	}
}

// A command that succeeded has succeeded, though its lock could not be freed.
func TestUnlockFails(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	if s == nil {
		t.Skip("redis-server is not on the PATH")
	}
	r := begin(t, does("signals"), "run", "--url", s.url, "x", "--", self)
	r.stdout.contains("ready")
	s.signal(t, syscall.SIGKILL)
	r.send(syscall.SIGTERM)
	if code := r.wait(); code != 3 || !strings.Contains(r.stderr.all(), "may stay taken until its TTL has passed") {
		t.Fatalf("exit code %d, stderr %q", code, r.stderr.text())
	}
}
