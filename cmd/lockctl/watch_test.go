//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/memlock"
)

func party(owner string) backend.Party { return backend.Party{Owner: owner} }

// info is the state of a lock "x"; the holder is "" for none.
func info(holder string, token uint64, waiters ...string) lock.Info {
	i := lock.Info{Name: "x"}
	if holder != "" {
		i.Holder = &lock.Holder{Party: party(holder), Token: token}
	}
	for _, w := range waiters {
		i.Waiters = append(i.Waiters, party(w))
	}
	return i
}

func TestChanges(t *testing.T) {
	t.Parallel()
	none := lock.Info{Name: "never"}
	for name, c := range map[string]struct {
		before lock.Info
		now    lock.Info
		again  bool
		want   []string
	}{
		"at first free":       {none, info("", 0), false, []string{"free"}},
		"at first held":       {none, info("a", 1, "b", "c"), false, []string{"held by a, token 1", "waits: b (2 in all)", "waits: c (2 in all)"}},
		"the same":            {info("a", 1, "b"), info("a", 1, "b"), false, nil},
		"free as before":      {info("", 0), info("", 0), false, nil},
		"taken":               {info("", 0), info("a", 1), false, []string{"held by a, token 1"}},
		"freed":               {info("a", 1), info("", 0), false, []string{"free; was held by a, token 1"}},
		"handed to a waiter":  {info("a", 1, "b", "c"), info("b", 2, "c"), false, []string{"held by b, token 2; before by a, token 1"}},
		"overtaken":           {info("a", 1, "b"), info("c", 2, "b"), false, []string{"held by c, token 2; before by a, token 1"}},
		"held again":          {info("a", 1), info("a", 2), false, []string{"held by a, token 2; before by a, token 1"}},
		"a waiter gave up":    {info("a", 1, "b", "c"), info("a", 1, "c"), false, []string{"waits no more: b (1 left)"}},
		"one for another":     {info("a", 1, "b"), info("a", 1, "c"), false, []string{"waits no more: b (1 left)", "waits: c (1 in all)"}},
		"a waiter for all":    {info("a", 1, "b"), info("", 0), false, []string{"waits no more: b (0 left)", "free; was held by a, token 1"}},
		"seen again":          {info("a", 1, "b"), info("a", 1, "b"), true, []string{"held by a, token 1"}},
		"seen again, changed": {info("a", 1), info("", 0), true, []string{"free; was held by a, token 1"}},
	} {
		last := &c.before
		if c.before.Name == none.Name {
			last = nil
		}
		var got []string
		for _, ch := range changes(last, c.now, c.again) {
			_, text, _ := strings.Cut(ch.String(), " x: ")
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What ages, and what would move the cursor, stays out of what is said of a past holder.
func TestChangeText(t *testing.T) {
	t.Parallel()
	old := lock.Info{Name: "x", Holder: &lock.Holder{Party: backend.Party{Owner: "o", Metadata: "w\x1b[2J", Age: time.Second}, Token: 3, Left: time.Second}}
	c := changes(&old, lock.Info{Name: "a\r\nb"}, false)[0]
	c.Time = time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	const want = `2026-01-02T03:04:05.006Z "a\r\nb": free; was held by "w\x1b[2J", token 3`
	if got := c.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	c = change{Name: "x", Event: "unseen", Error: errorText(errors.New("lock: dial redis://u:p@h/0\nno\x1b[2J"))}
	if got := c.String(); !strings.HasSuffix(got, "x: no answer: dial redis://***@h/0 no [2J") {
		t.Error(got)
	}
}

// A watcher asks once for each name in each interval, tells an outage once, and ends
// with its context, or with what can never succeed.
func TestWatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := lock.New(memlock.New(), lock.WithMetadata("one"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		var (
			mu    sync.Mutex
			asked = map[string]int{}
			down  error
			told  []string
			ended = make(chan error)
		)
		fail := func(err error) { mu.Lock(); down = err; mu.Unlock() }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := watcher{
			names: []string{"a", "b"}, interval: time.Second,
			ask: func(ctx context.Context, name string) (lock.Info, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[name]++
				if down != nil {
					return lock.Info{}, down
				}
				return c.Inspect(ctx, name)
			},
			tell: func(c change) error {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, c.Name+" "+c.Event)
				return nil
			},
		}
		go func() { ended <- w.run(ctx) }()
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Fatalf("told %q, want %q", told, want)
			}
			told = nil
		}
		next := func() { time.Sleep(time.Second); synctest.Wait() } // by the clock of the test
		expect("a free", "b free")
		l, err := c.Mutex("a").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		expect()
		next()
		expect("a held")
		next()
		expect()
		fail(errors.New("no route"))
		next()
		next()
		expect("a unseen", "b unseen")
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		next()
		expect()
		fail(nil)
		next()
		expect("a free", "b free")
		mu.Lock()
		if asked["a"] != 7 || asked["b"] != 7 {
			t.Errorf("asked %v in 6 intervals", asked)
		}
		mu.Unlock()
		fail(errors.ErrUnsupported)
		next()
		if err := <-ended; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		expect()

		fail(nil)
		go func() { ended <- w.run(ctx) }()
		expect("a free", "b free")
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			text := begin(t, nil, "watch", "--url", p.url, "--interval", "100ms", "x", "y")
			text.stdout.contains(" x: free\n")
			text.stdout.contains(" y: free\n")
			lines := begin(t, nil, "watch", "--url", p.url, "--interval", "100ms", "--json", "x")
			lines.stdout.contains(`"free"`)

			hold := func(as string) *run {
				return begin(t, does("signals"), "run", "-q", "--url", p.url, "--as", as, "x", "--", self)
			}
			one := hold("one")
			one.stdout.contains("ready")
			text.stdout.contains(" x: held by one, token ")
			lines.stdout.contains(`"held"`) // so that none of both sees less than the other
			two := hold("two")
			text.stdout.contains(" x: waits: two")
			lines.stdout.contains(`"waits"`)
			three := hold("three")
			text.stdout.contains(" x: waits: three")
			lines.stdout.contains(`"three"`)
			three.send(syscall.SIGTERM)
			text.stdout.contains(" x: waits no more: three (1 left)\n")
			lines.stdout.contains(`"gone"`)
			one.send(syscall.SIGTERM)
			two.stdout.contains("ready")
			text.stdout.contains(" x: held by two, token ")
			text.stdout.contains("; before by one, token ")
			lines.stdout.contains(`"before"`)
			two.send(syscall.SIGTERM)
			text.stdout.contains(" x: free; was held by two, token ")
			lines.stdout.times(`"free"`, 2)

			for _, w := range []*run{text, lines} {
				w.send(syscall.SIGINT)
				if code := w.wait(); code != 0 || w.stderr.all() != "" {
					t.Errorf("exit code %d, stderr %q", code, w.stderr.text())
				}
			}
			if n := strings.Count(text.stdout.all(), "\n"); n != 8 {
				t.Errorf("%d lines: %s", n, text.stdout.text())
			}
			var events []string
			for line := range strings.Lines(lines.stdout.all()) {
				var c change
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

// A service that does not answer is told once, and what is there when it does again.
func TestWatchOutage(t *testing.T) {
	t.Parallel()
	s := startRedis(t)
	if s == nil {
		t.Skip("redis-server is not on the PATH")
	}
	r := begin(t, nil, "watch", "--url", s.url, "--interval", "100ms", "x")
	r.stdout.contains(" x: free\n")
	s.signal(t, syscall.SIGSTOP)
	r.stdout.contains(" x: no answer: ")
	s.signal(t, syscall.SIGCONT)
	r.stdout.times(" x: free\n", 2)
	r.send(syscall.SIGTERM)
	if code := r.wait(); code != 0 || strings.Count(r.stdout.all(), "\n") != 3 {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, r.stdout.text(), r.stderr.text())
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	for _, c := range []struct {
		args  []string
		code  int
		lines int
		says  string
	}{
		{[]string{"x", "--count", "1"}, 0, 1, ""},
		{[]string{"x", "y", "z", "--count", "2"}, 0, 2, ""},
		{[]string{"x", "--timeout", "3s"}, 0, 1, ""},
		{[]string{"x", "--timeout", "3s", "--count", "2"}, codeFailed, 1, "1 of 2 lines within 3s"},
		{[]string{"x", "--count", "0"}, codeUsage, 0, "invalid --count 0: want 1 or more"},
		{[]string{"x", "--interval", "99ms"}, codeUsage, 0, "want a duration from 100ms to 1h"},
		{[]string{"x", "--interval", "61m"}, codeUsage, 0, "want a duration from 100ms to 1h"},
		{[]string{"x", "--timeout", "0"}, codeUsage, 0, "want a positive duration"},
		{nil, codeUsage, 0, "want one NAME or more"},
		{[]string{""}, codeUsage, 0, "name"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			code, out, stderr := lockctl(t, nil, append([]string{"watch", "--url", url}, c.args...)...)
			if code != c.code || strings.Count(out, "\n") != c.lines || !strings.Contains(stderr, c.says) || (stderr == "") != (c.says == "") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, out, stderr)
			}
		})
	}
	r := begin(t, nil, "watch", "--url", url, "x", "--count", "2")
	r.stdout.contains("free")
	r.send(syscall.SIGTERM)
	if code := r.wait(); code != codeSignal+int(syscall.SIGTERM) {
		t.Errorf("exit code %d of a watch that was ended before its count", code)
	}
}

// No name, no metadata and no foreign owner gets a control character to the terminal,
// or to the shell that completes.
func TestNoControlCharacters(t *testing.T) {
	t.Parallel()
	const evil = "e\x1b]0;owned\avil"
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			names := []string{evil}
			if p.server != nil {
				o, err := redis.ParseURL(p.url)
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
			c := p.client(t)
			l, err := c.Mutex(evil).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{
				append([]string{"watch", "--count", fmt.Sprint(len(names))}, names...),
				{"top", "--once"}, {"list"}, {"__complete", "watch", ""},
			} {
				code, out, stderr := lockctl(t, nil, append(args, "--url", p.url)...)
				if args[0] == "__complete" {
					code, out, stderr = lockctl(t, nil, "__complete", "watch", "--url", p.url, "")
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
