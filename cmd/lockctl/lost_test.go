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
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// endings are commands that end in different ways.
func endings() []string {
	if runtime.GOOS == "linux" {
		return []string{"stubborn", "parent", "leaves"}
	}
	return []string{"stubborn", "parent"}
}

func heldByAny(*lock.Holder) bool { return true }

// A break ends the command and its children, even if they ignore TERM.
func TestBreakEndsTheCommand(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		// The test does not wait for a renewal: the service must notify the holder. Files
		// notify on Linux only.
		ttl := "2m"
		if !p.IsServer() && runtime.GOOS != "linux" {
			ttl = "10s"
		}
		for _, how := range endings() {
			t.Run(p.Name+"/"+how, func(t *testing.T) {
				t.Parallel()
				env, dead := watchDeath(t, processes(how))
				r := cmdtest.Begin(t, append(mode(how), env), "run", "--url", p.URL, "--ttl", ttl, "--grace", "1s", how, "--", self)
				r.Stdout.Contains("ready")
				if code, out, stderr := cmdtest.Exec(t, nil, "break", "--url", p.URL, "--yes", how); code != 0 || !strings.Contains(out, "taken from pid ") {
					t.Fatalf("break: exit code %d, stdout %q, stderr %q", code, out, stderr)
				}
				if code := r.Wait(); code != lockcmd.ExitLost {
					t.Fatalf("exit code %d, stderr %q", code, r.Stderr.Text())
				}
				dead() // fails if a process of the command continues
				if !strings.Contains(r.Stdout.All(), "terminated") {
					t.Errorf("the command got no TERM: %q", r.Stdout.Text())
				}
				if !strings.Contains(r.Stderr.All(), "ending the command") {
					t.Errorf("stderr %q", r.Stderr.Text())
				}
			})
		}
	}
}

// A command whose lock cannot be renewed is dead before the service can grant the lock to
// another client, though it ignores TERM.
func TestLostCommandIsDeadBeforeTheTTLEnds(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"stopped server": syscall.SIGSTOP, "killed server": syscall.SIGKILL} {
		for _, how := range endings() {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				onTime(t, func() (wrong string, late time.Duration) {
					s := cmdtest.RequireRedis(t)
					const ttl = 3 * time.Second
					env, dead := watchDeath(t, processes(how))
					r := cmdtest.Begin(t, append(mode(how), env), "run", "--url", s.URL, "--ttl", ttl.String(), "x", "--", self)
					r.Stdout.Contains("ready")
					c := s.Client(t)
					// just renewed: no renewal comes between this answer and the failure
					awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left < ttl*8/10 })
					worst := lateness(t)
					h, asked := awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
					s.Signal(t, sig)
					expires := asked.Add(h.Left)

					if code := r.Wait(); code != lockcmd.ExitLost {
						t.Fatalf("exit code %d, stderr %q", code, r.Stderr.Text())
					}
					left := expires.Sub(dead())
					late = worst()
					switch {
					case left <= 0:
						wrong = fmt.Sprintf("the command died %v after its TTL", -left)
					case !strings.Contains(r.Stdout.All(), "terminated"):
						wrong = fmt.Sprintf("it got no TERM before: %q", r.Stdout.Text())
					default:
						t.Logf("dead %v before the end of the TTL", left)
					}
					return wrong, late
				})
			})
		}
	}
}

// An outage shorter than the lease does not end the command.
func TestShortOutageIsRiddenOut(t *testing.T) {
	t.Parallel()
	s := cmdtest.RequireRedis(t)
	const ttl = 6 * time.Second
	// no grace: the most time for the renewal after the outage
	r := cmdtest.Begin(t, mode("signals"), "run", "--url", s.URL, "--ttl", ttl.String(), "--grace", "0", "x", "--", self)
	r.Stdout.Contains("ready")
	c := s.Client(t)
	awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
	s.Signal(t, syscall.SIGSTOP)
	time.Sleep(ttl * 4 / 10) // the outage lasts past the next renewal
	s.Signal(t, syscall.SIGCONT)
	awaitHolder(t, c, "x", func(h *lock.Holder) bool { return h.Left > ttl*9/10 })
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != 3 || r.Stderr.All() != "" {
		t.Fatalf("exit code %d, stderr %q", code, r.Stderr.Text())
	}
}

// When lockctl is killed its lock becomes free, at once or when its TTL ends. On Linux
// its command is killed.
func TestKilledLockctl(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			const ttl = 4 * time.Second
			env, dead := watchDeath(t, 1)
			r := cmdtest.Begin(t, append(mode("stubborn"), env), "run", "--url", p.URL, "--ttl", ttl.String(), "--grace", "0", "x", "--", self)
			r.Stdout.Contains("ready")
			killed := time.Now()
			r.Send(syscall.SIGKILL)
			if runtime.GOOS == "linux" {
				dead() // fails if the command continues
			}
			code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", p.URL, "--ttl", ttl.String(), "--wait", "10s", "x", "--", "true")
			if code != 0 {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			t.Logf("taken again %v after the kill", time.Since(killed))
			if !p.IsServer() {
				r.Wait()
				if code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", p.URL, "--wait", "0", "x", "--", "true"); code != 0 {
					t.Errorf("not free at once: exit code %d, stderr %q", code, stderr)
				}
			}
		})
	}
}

// A failed unlock does not change the exit code of the command.
func TestUnlockFails(t *testing.T) {
	t.Parallel()
	s := cmdtest.RequireRedis(t)
	r := cmdtest.Begin(t, mode("signals"), "run", "--url", s.URL, "x", "--", self)
	r.Stdout.Contains("ready")
	s.Signal(t, syscall.SIGKILL)
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != 3 || !strings.Contains(r.Stderr.All(), "may remain held until its TTL has passed") {
		t.Fatalf("exit code %d, stderr %q", code, r.Stderr.Text())
	}
}
