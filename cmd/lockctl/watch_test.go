//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			text := cmdtest.Begin(t, nil, "watch", "--url", p.URL, "--interval", "100ms", "x", "y")
			text.Stdout.Contains(" x: free\n")
			text.Stdout.Contains(" y: free\n")
			lines := cmdtest.Begin(t, nil, "watch", "--url", p.URL, "--interval", "100ms", "-o", "json", "x")
			lines.Stdout.Contains(`"free"`)

			hold := func(as string) *cmdtest.Run {
				return cmdtest.Begin(t, mode("signals"), "run", "-q", "--url", p.URL, "--as", as, "x", "--", self)
			}
			one := hold("one")
			one.Stdout.Contains("ready")
			text.Stdout.Contains(" x: held by one, token ")
			lines.Stdout.Contains(`"held"`) // so that both see each state
			two := hold("two")
			text.Stdout.Contains(" x: waits: two")
			lines.Stdout.Contains(`"waits"`)
			three := hold("three")
			text.Stdout.Contains(" x: waits: three")
			lines.Stdout.Contains(`"three"`)
			three.Send(syscall.SIGTERM)
			text.Stdout.Contains(" x: waits no more: three (1 left)\n")
			lines.Stdout.Contains(`"gone"`)
			one.Send(syscall.SIGTERM)
			two.Stdout.Contains("ready")
			text.Stdout.Contains(" x: held by two, token ")
			text.Stdout.Contains("; before by one, token ")
			lines.Stdout.Contains(`"before"`)
			two.Send(syscall.SIGTERM)
			text.Stdout.Contains(" x: free; was held by two, token ")
			lines.Stdout.Times(`"free"`, 2)

			for _, w := range []*cmdtest.Run{text, lines} {
				w.Send(syscall.SIGINT)
				if code := w.Wait(); code != 0 || w.Stderr.All() != "" {
					t.Errorf("exit code %d, stderr %q", code, w.Stderr.Text())
				}
			}
			if n := strings.Count(text.Stdout.All(), "\n"); n != 8 {
				t.Errorf("%d lines: %s", n, text.Stdout.Text())
			}
			var events []string
			for line := range strings.Lines(lines.Stdout.All()) {
				var c struct {
					Time        time.Time
					Name, Event string
				}
				if err := json.Unmarshal([]byte(line), &c); err != nil || c.Name != "x" || c.Time.IsZero() {
					t.Fatalf("%v: %s", err, line)
				}
				events = append(events, c.Event)
			}
			if want := []string{"free", "held", "waits", "waits", "gone", "held", "free"}; !slices.Equal(events, want) {
				t.Errorf("%q, want %q", events, want)
			}
		})
	}
}

// With --until-free watch ends when no lock has a holder, and not before.
func TestWatchUntilFree(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			holder := cmdtest.Begin(t, mode("signals"), "run", "-q", "--url", p.URL, "x", "--", self)
			holder.Stdout.Contains("ready")
			if code, _, stderr := cmdtest.Exec(t, nil, "watch", "--url", p.URL, "--until-free", "--timeout", "300ms", "y", "x"); code != lockcmd.ExitFailed || !strings.Contains(stderr, "not free within 300ms") {
				t.Errorf("of a held lock: exit code %d, stderr %q", code, stderr)
			}
			w := cmdtest.Begin(t, nil, "watch", "--url", p.URL, "--interval", "100ms", "--until-free", "y", "x")
			w.Stdout.Contains(" x: held by ")
			holder.Send(syscall.SIGTERM)
			if code := w.Wait(); code != 0 || !strings.Contains(w.Stdout.All(), " x: free; was held by ") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, w.Stdout.Text(), w.Stderr.Text())
			}
		})
	}
}

// An outage is reported once, and the state when the service answers again.
func TestWatchOutage(t *testing.T) {
	t.Parallel()
	s := cmdtest.RequireRedis(t)
	r := cmdtest.Begin(t, nil, "watch", "--url", s.URL, "--interval", "100ms", "x")
	r.Stdout.Contains(" x: free\n")
	s.Signal(t, syscall.SIGSTOP)
	r.Stdout.Contains(" x: no answer: ")
	s.Signal(t, syscall.SIGCONT)
	r.Stdout.Times(" x: free\n", 2)
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != 0 || strings.Count(r.Stdout.All(), "\n") != 3 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, r.Stdout.Text(), r.Stderr.Text())
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	for _, c := range []struct {
		args  []string
		code  int
		lines int
		says  string
	}{
		{[]string{"x", "--count", "1"}, 0, 1, ""},
		{[]string{"x", "y", "z", "--count", "2"}, 0, 2, ""},
		{[]string{"x", "--timeout", "3s"}, 0, 1, ""},
		{[]string{"x", "--timeout", "3s", "--count", "2"}, lockcmd.ExitFailed, 1, "1 of 2 lines within 3s"},
		{[]string{"x", "--count", "0"}, lockcmd.ExitUsage, 0, "invalid --count 0: want 1 or more"},
		{[]string{"x", "--interval", "99ms"}, lockcmd.ExitUsage, 0, "want a duration from 100ms to 1h"},
		{[]string{"x", "--interval", "61m"}, lockcmd.ExitUsage, 0, "want a duration from 100ms to 1h"},
		{[]string{"x", "--timeout", "0"}, lockcmd.ExitUsage, 0, "want a positive duration"},
		{nil, lockcmd.ExitUsage, 0, "want one NAME or more"},
		{[]string{""}, lockcmd.ExitUsage, 0, "name"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			code, out, stderr := cmdtest.Exec(t, nil, append([]string{"watch", "--url", url}, c.args...)...)
			if code != c.code || strings.Count(out, "\n") != c.lines || !strings.Contains(stderr, c.says) || (stderr == "") != (c.says == "") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, stderr)
			}
		})
	}
	r := cmdtest.Begin(t, nil, "watch", "--url", url, "x", "--count", "2")
	r.Stdout.Contains("free")
	r.Send(syscall.SIGTERM)
	if code := r.Wait(); code != lockcmd.ExitSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d of a watch that was ended before its count", code)
	}
}

// Control characters of a name, metadata or a foreign owner reach neither the terminal nor
// the completing shell.
func TestNoControlCharacters(t *testing.T) {
	t.Parallel()
	const evil = "e\x1b]0;owned\avil"
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			names := []string{evil}
			if p.IsServer() {
				o, err := redis.ParseURL(p.URL)
				if err != nil {
					t.Fatal(err)
				}
				r := redis.NewClient(o)
				defer r.Close()
				if err := r.Set(t.Context(), "lock:foreign", evil, 0).Err(); err != nil {
					t.Fatal(err)
				}
				names = append(names, "foreign")
			}
			c := p.Client(t)
			l, err := c.Mutex(evil).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				append([]string{"watch", "--count", fmt.Sprint(len(names))}, names...),
				{"top", "--once"}, {"list"}, {"__complete", "watch", ""},
			} {
				code, out, stderr := cmdtest.Exec(t, nil, append(args, "--url", p.URL)...)
				if args[0] == "__complete" {
					code, out, stderr = cmdtest.Exec(t, nil, "__complete", "watch", "--url", p.URL, "")
				} else if !strings.Contains(out, `\x1b`) {
					t.Errorf("%q does not show it quoted: %q", args, out)
				}
				if code != 0 || strings.ContainsAny(out+stderr, "\x1b\a") {
					t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
				}
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
