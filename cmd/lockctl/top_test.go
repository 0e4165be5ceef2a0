//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func heldFor(name string, age time.Duration, waits ...time.Duration) lock.Info {
	i := lock.Info{Name: name, Holder: &lock.Holder{Party: backend.Party{Owner: "o", Metadata: "of " + name, Age: age}, Token: 7, Left: 9 * time.Second}}
	for _, w := range waits {
		i.Waiters = append(i.Waiters, backend.Party{Owner: fmt.Sprint(w), Age: w})
	}
	return i
}

func TestTopOrder(t *testing.T) {
	t.Parallel()
	for order, want := range map[string]string{"waited": "bdcae", "waiters": "cbdae", "held": "eabcd", "name": "abcde"} {
		v := view{}
		v.update([]lock.Info{
			heldFor("a", 5*time.Second), heldFor("b", 4*time.Second, time.Second, 3*time.Second),
			heldFor("c", 3*time.Second, time.Second, time.Second, time.Second), heldFor("d", 2*time.Second, 2*time.Second, time.Second), heldFor("e", 9*time.Second),
		}, nil, orders[order])
		if order == "waited" {
			want = "bdcea" // without waiters who has held for longest
		}
		got := ""
		for _, i := range v.held {
			got += i.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
	if len(orders) != len(orderNames) || slices.ContainsFunc(orderNames, func(n string) bool { return orders[n] == nil }) {
		t.Errorf("%q", orderNames)
	}
}

func TestTopTable(t *testing.T) {
	t.Parallel()
	v := view{backend: "mem"}
	held := []lock.Info{heldFor("n\x1b[2J", 90*time.Second, 1200*time.Millisecond), {Name: "etcd", Holder: &lock.Holder{Party: backend.Party{Owner: "f"}, Foreign: true}}, heldFor("c", 0)}
	v.update(held, nil, orders["name"])
	v.asked = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v.seen = v.asked
	table := func(height int) string {
		var b strings.Builder
		v.table(&b, height)
		return b.String()
	}
	const all = `mem: 3 held, 1 waiting, at 03:04:05
NAME        TOKEN  HELD   LEFT  WAITERS  WAITED  HOLDER
"n\x1b[2J"  7      1m30s  9s    1        1.2s    "of n\x1b[2J"
etcd        -      -      -     0        -       a foreign owner f
c           7      -      9s    0        -       of c
`
	for height, want := range map[int]string{0: all, 5: all} {
		if got := table(height); got != want {
			t.Errorf("height %d:\n%s\nwant\n%s", height, got, want)
		}
	}
	if got := table(4); strings.Count(got, "\n") != 4 || !strings.HasSuffix(got, "\n... and 2 more\n") {
		t.Errorf("height 4:\n%s", got)
	}
	frame := string(v.frame(6))
	if want := "\x1b[?7l\x1b[H" + strings.ReplaceAll(all, "\n", "\x1b[K\n") + "\x1b[J\x1b[?7h"; frame != want {
		t.Errorf("%q\nwant %q", frame, want)
	}

	v.update(nil, errors.New("lock: list on mem: no\nroute"), orders["name"])
	v.asked = v.asked.Add(2 * time.Minute)
	v.update(nil, errors.New("lock: list on mem: no\nroute"), orders["name"])
	if got := table(0); !strings.HasPrefix(got, "mem: no answer at ") || !strings.Contains(got, ", the last was at 03:04:05: list on mem: no route\nNAME ") || !strings.HasSuffix(got, "of c\n") {
		t.Errorf("without an answer:\n%s", got)
	}
	v.update([]lock.Info{}, nil, orders["name"])
	if got := table(0); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, ", times out of sight: 1\n") {
		t.Errorf("again:\n%s", got)
	}
}

func TestTop(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			c := p.client(t)
			for _, name := range []string{"a/1", "b/1"} {
				l, err := c.Mutex(name, lock.WithMetadata("of "+name)).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Unlock(t.Context()) }()
			}
			waiter := begin(t, does("signals"), "run", "-q", "--url", p.url, "--as", "late", "b/1", "--", self)
			for {
				info, err := c.Inspect(t.Context(), "b/1")
				if err != nil {
					t.Fatal(err)
				}
				if len(info.Waiters) == 1 {
					break
				}
				select {
				case <-waiter.done:
					t.Fatal(waiter.stderr.text())
				case <-time.After(10 * time.Millisecond):
				}
			}
			code, out, stderr := lockctl(t, nil, "top", "--url", p.url, "--once")
			lines := strings.Split(out, "\n")
			if code != 0 || stderr != "" || len(lines) != 5 || !strings.HasPrefix(lines[0], p.name+": 2 held, 1 waiting, at ") ||
				!strings.HasPrefix(lines[2], "b/1 ") || !strings.HasSuffix(lines[2], "of b/1") || !strings.HasPrefix(lines[3], "a/1 ") {
				t.Errorf("exit code %d, stderr %q:\n%s", code, stderr, out)
			}
			code, out, _ = lockctl(t, nil, "top", "--url", p.url, "--once", "--json", "--prefix", "a/")
			var v struct {
				Time time.Time
				Held []lock.Info
			}
			if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || strings.Count(out, "\n") != 1 || v.Time.IsZero() || len(v.Held) != 1 || v.Held[0].Name != "a/1" {
				t.Errorf("exit code %d, %v: %s", code, err, out)
			}

			piped := begin(t, nil, "top", "--url", p.url, "--interval", "100ms")
			piped.stdout.times(p.name+": 2 held, ", 3)
			if text := piped.stdout.text(); strings.Contains(text, "\x1b") || !strings.Contains(text, "\n\n"+p.name) {
				t.Errorf("piped: %q", text)
			}
			piped.send(syscall.SIGINT)
			if code := piped.wait(); code != 0 || piped.stderr.all() != "" {
				t.Errorf("exit code %d, stderr %q", code, piped.stderr.text())
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
		code, out, stderr := lockctl(t, nil, append([]string{"top", "--once", "--url", fileURL(t)}, strings.Fields(args)...)...)
		if code != codeUsage || out != "" || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
	url := fmt.Sprintf("redis://127.0.0.1:%d/0", freePort(t))
	if code, out, _ := lockctl(t, nil, "top", "--once", "--url", url); code != codeUnavailable || out != "" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
}

// While the service is out of sight top says so, and goes on.
func TestTopOutage(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	if s == nil {
		t.Skip("redis-server is not on the PATH")
	}
	r := begin(t, nil, "top", "--url", s.url, "--interval", "100ms")
	r.stdout.contains("redis: 0 held, 0 waiting, at ")
	s.signal(t, syscall.SIGSTOP)
	r.stdout.contains("redis: no answer at ")
	s.signal(t, syscall.SIGCONT)
	r.stdout.contains(", times out of sight: 1\n")
	r.send(syscall.SIGTERM)
	if code := r.wait(); code != 0 || r.stderr.all() != "" {
		t.Errorf("exit code %d, stderr %q", code, r.stderr.text())
	}
}
