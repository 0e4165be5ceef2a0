//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestInspectAndList(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			parse := func(v any, args ...string) {
				t.Helper()
				code, out, stderr := cmdtest.Exec(t, nil, append(args, "--url", p.URL, "-o", "json")...)
				if code != 0 {
					t.Fatalf("exit code %d, stderr %q", code, stderr)
				}
				if err := json.Unmarshal([]byte(out), v); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			var list []lock.Info
			if parse(&list, "list"); list == nil || len(list) != 0 {
				t.Fatalf("%v", list)
			}
			var info lock.Info
			if parse(&info, "inspect", "b"); info.Name != "b" || info.Holder != nil {
				t.Fatalf("%+v", info)
			}

			for _, name := range []string{"b", "a"} {
				cmdtest.Begin(t, mode("stubborn"), "run", "--url", p.URL, name, "--", self).Stdout.Contains("ready")
			}
			if parse(&list, "list"); len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
				t.Fatalf("%v", list)
			}
			parse(&info, "inspect", "b")
			if h := info.Holder; h == nil || h.Token == 0 || len(h.Owner) != 32 || !strings.HasPrefix(h.Metadata, "pid ") {
				t.Fatalf("%+v", info.Holder)
			}
			if code, out, _ := cmdtest.Exec(t, nil, "inspect", "--url", p.URL, "b"); code != 0 || !strings.HasPrefix(out, "b: held by pid ") {
				t.Fatalf("%d %q", code, out)
			}
			if parse(&list, "list", "--prefix", "b"); len(list) != 1 || list[0].Name != "b" {
				t.Fatalf("%v", list)
			}
			if code, out, _ := cmdtest.Exec(t, nil, "list", "--url", p.URL); code != 0 || strings.Count(out, "\n") != 3 {
				t.Fatalf("%d %q", code, out)
			}
			var ping struct {
				Backend   string `json:"backend"`
				RoundTrip int64  `json:"round_trip_ns"`
			}
			if parse(&ping, "ping"); ping.Backend != p.Name || ping.RoundTrip <= 0 {
				t.Fatalf("%+v", ping)
			}
			if code, out, _ := cmdtest.Exec(t, nil, "__complete", "inspect", "--url", p.URL, ""); code != 0 || !strings.HasPrefix(out, "a\theld by pid ") {
				t.Fatalf("completion: %d %q", code, out)
			}
			if code, out, _ := cmdtest.Exec(t, nil, "__complete", "watch", "--url", p.URL, "a", ""); code != 0 || !strings.HasPrefix(out, "b\theld by pid ") {
				t.Fatalf("completion of a second name: %d %q", code, out)
			}
		})
	}
}

func TestAdminUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"inspect"}, {"inspect", "a", "b"}, {"break"}, {"list", "x"}, {"ping", "x"}, {"inspect", ""}, {"break", "--yes", ""}} {
		code, out, stderr := cmdtest.Exec(t, nil, append(args, "--url", cmdtest.FileURL(t))...)
		if code != lockcmd.ExitUsage || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
}

// No error shows a password, even if the URL is in the place of another argument.
func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t:p%40ss/w#rd"
	plain := "redis://user:" + secret + "@127.0.0.1:1/0"
	encoded := "redis://user:s3cr3t%2Fp%40ssw%23rd@127.0.0.1:1/0"
	for _, url := range []string{plain, encoded} {
		for _, args := range [][]string{
			{"run", "-v", "--url", url, "x", "--", "true"},
			{"run", "-v", "-o", "json", "--url", url, "x", "--", "true"},
			{"run", "--url", url + "?ttl=soon", "x", "--", "true"},
			{"run", "--url", url + "?unknown=1", "x", "--", "true"},
			{"run", "--ttl", url, "x", "--", "true"},
			{"run", "x", "--", url},
			{"run", url, "x", "--", "true"},
			{"run", "--wait", "0", "--url", cmdtest.FileURL(t), url, "--", "true"},
			{"run", "--" + url, "x"},
			{"inspect", "-v", "--url", url, "x"},
			{"list", "--url", url, "-o", "json"},
			{"ping", "-v", "--url", url},
			{"ping", url},
			{url},
		} {
			_, out, stderr := cmdtest.Exec(t, nil, args...)
			if all := out + stderr; strings.Contains(all, "s3cr3t") {
				t.Errorf("%q: shows %q", args, all)
			}
		}
		for _, args := range [][]string{{"ping", "-v"}, {"run", "--help"}, {"--help"}, {"__complete", "inspect", ""}} {
			_, out, stderr := cmdtest.Exec(t, []string{"LOCK_URL=" + url}, args...)
			if all := out + stderr; strings.Contains(all, "s3cr3t") {
				t.Errorf("%q with LOCK_URL: shows %q", args, all)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range program().AllCommands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.Name(), c.Short)
		}
		if !strings.Contains(c.Example, "  lockctl "+c.Name()) {
			t.Errorf("%s has no example", c.Name())
		}
		for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
			if len(line) > 110 {
				t.Errorf("%s: a line of %d characters: %q", c.Name(), len(line), line)
			}
		}
	}
	code, out, stderr := cmdtest.Exec(t, nil, "help", "run")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, s := range []string{"LOCK_TOKEN", "   75  not acquired", "   76  the lock was lost", "(default forever)"} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in the help of run", s)
		}
	}
	for _, line := range strings.Split(out, "\n") {
		if len(line) > 140 {
			t.Errorf("a line of %d characters: %q", len(line), line)
		}
	}
	if code, out, _ := cmdtest.Exec(t, nil, "completion", "bash"); code != 0 || !strings.Contains(out, "__start_lockctl") {
		t.Errorf("completion: exit code %d", code)
	}
	if code, out, _ := cmdtest.Exec(t, nil, "__complete", "list", "--url", ""); code != 0 || !strings.Contains(out, "redis://\n") {
		t.Errorf("completion of --url: %d %q", code, out)
	}
	if code, out, _ := cmdtest.Exec(t, nil, "version"); code != 0 || !strings.Contains(out, " mem, ") {
		t.Errorf("version: %d %q", code, out)
	}
}

func TestNoHome(t *testing.T) {
	t.Parallel()
	code, _, stderr := cmdtest.Exec(t, []string{"HOME=", "XDG_STATE_HOME="}, "list")
	if code != lockcmd.ExitUsage || stderr == "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	_, want, _ := cmdtest.Exec(t, nil, "version")
	if code, out, stderr := cmdtest.Exec(t, nil, "--version"); code != 0 || out != want || !strings.HasPrefix(out, "lockctl ") {
		t.Errorf("exit code %d, stdout %q, stderr %q; want %q", code, out, stderr, want)
	}
}
