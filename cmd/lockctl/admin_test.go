//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/interlock-go/lock"
)

func TestInspectAndList(t *testing.T) {
	t.Parallel()
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			parse := func(v any, args ...string) {
				t.Helper()
				code, out, stderr := lockctl(t, nil, append(args, "--url", p.url, "--json")...)
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
				begin(t, does("stubborn"), "run", "--url", p.url, name, "--", self).stdout.contains("ready")
			}
			if parse(&list, "list"); len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
				t.Fatalf("%v", list)
			}
			parse(&info, "inspect", "b")
			if h := info.Holder; h == nil || h.Token == 0 || len(h.Owner) != 32 || !strings.HasPrefix(h.Metadata, "pid ") {
				t.Fatalf("%+v", info.Holder)
			}
			if code, out, _ := lockctl(t, nil, "inspect", "--url", p.url, "b"); code != 0 || !strings.HasPrefix(out, "b: held by pid ") {
				t.Fatalf("%d %q", code, out)
			}
			if parse(&list, "list", "--prefix", "b"); len(list) != 1 || list[0].Name != "b" {
				t.Fatalf("%v", list)
			}
			if code, out, _ := lockctl(t, nil, "list", "--url", p.url); code != 0 || strings.Count(out, "\n") != 3 {
				t.Fatalf("%d %q", code, out)
			}
			var ping struct {
				Backend   string `json:"backend"`
				RoundTrip int64  `json:"round_trip_ns"`
			}
			if parse(&ping, "ping"); ping.Backend != p.name || ping.RoundTrip <= 0 {
				t.Fatalf("%+v", ping)
			}
			if code, out, _ := lockctl(t, nil, "__complete", "inspect", "--url", p.url, ""); code != 0 || !strings.HasPrefix(out, "a\theld by pid ") {
				t.Fatalf("completion: %d %q", code, out)
			}
			if code, out, _ := lockctl(t, nil, "__complete", "watch", "--url", p.url, "a", ""); code != 0 || !strings.HasPrefix(out, "b\theld by pid ") {
				t.Fatalf("completion of a second name: %d %q", code, out)
			}
		})
	}
}

func TestAdminUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"inspect"}, {"inspect", "a", "b"}, {"break"}, {"list", "x"}, {"ping", "x"}, {"inspect", ""}, {"break", "--yes", ""}} {
		code, out, stderr := lockctl(t, nil, append(args, "--url", fileURL(t))...)
		if code != codeUsage || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
}

// Whatever goes wrong, and wherever the URL was put by mistake: no password is shown.
func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t:p%40ss/w#rd"
	plain := "redis://user:" + secret + "@127.0.0.1:1/0"
	encoded := "redis://user:s3cr3t%2Fp%40ssw%23rd@127.0.0.1:1/0"
	for _, url := range []string{plain, encoded} {
		for _, args := range [][]string{
			{"run", "-v", "--url", url, "x", "--", "true"},
			{"run", "-v", "--json", "--url", url, "x", "--", "true"},
			{"run", "--url", url + "?ttl=soon", "x", "--", "true"},
			{"run", "--url", url + "?unknown=1", "x", "--", "true"},
			{"run", "--ttl", url, "x", "--", "true"},
			{"run", "x", "--", url},
			{"run", url, "x", "--", "true"},
			{"run", "--wait", "0", "--url", fileURL(t), url, "--", "true"},
			{"run", "--" + url, "x"},
			{"inspect", "-v", "--url", url, "x"},
			{"list", "--url", url, "--json"},
			{"ping", "-v", "--url", url},
			{"ping", url},
			{url},
		} {
			_, out, stderr := lockctl(t, nil, args...)
			if all := out + stderr; strings.Contains(all, "s3cr3t") {
				t.Errorf("%q: shows %q", args, all)
			}
		}
		for _, args := range [][]string{{"ping", "-v"}, {"run", "--help"}, {"--help"}, {"__complete", "inspect", ""}} {
			_, out, stderr := lockctl(t, []string{"LOCK_URL=" + url}, args...)
			if all := out + stderr; strings.Contains(all, "s3cr3t") {
				t.Errorf("%q with LOCK_URL: shows %q", args, all)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	a := &app{output: &output{}}
	for _, c := range a.root().Commands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.Name(), c.Short)
		}
		if !strings.Contains(c.Example, "  lockctl "+c.Name()) && c.Name() != "completion" || c.Example == "" {
			t.Errorf("%s has no example", c.Name())
		}
		for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
			if len(line) > 110 {
				t.Errorf("%s: a line of %d characters: %q", c.Name(), len(line), line)
			}
		}
	}
	code, out, stderr := lockctl(t, nil, "help", "run")
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
	if code, out, _ := lockctl(t, nil, "completion", "bash"); code != 0 || !strings.Contains(out, "__start_lockctl") {
		t.Errorf("completion: exit code %d", code)
	}
	if code, out, _ := lockctl(t, nil, "__complete", "list", "--url", ""); code != 0 || !strings.Contains(out, "redis://\n") {
		t.Errorf("completion of --url: %d %q", code, out)
	}
	if code, out, _ := lockctl(t, nil, "version"); code != 0 || !strings.Contains(out, " mem, ") {
		t.Errorf("version: %d %q", code, out)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	md, js := filepath.Join(dir, "r.md"), filepath.Join(dir, "r.json")
	code, out, stderr := lockctl(t, nil, "conformance", "--url", fileURL(t), "--run", "^exclusion/0[12]", "--report-md", md, "--report-json", js)
	if code != 0 || stderr != "" || !strings.Contains(out, "passed        exclusion/01-free-key-granted") || !strings.Contains(out, "passed        exclusion/02-other-process") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
	text, err := os.ReadFile(js)
	var r struct{ Results []any }
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || len(r.Results) < 4 {
		t.Fatalf("%v: %s", err, text)
	}
	if text, err := os.ReadFile(md); err != nil || !strings.HasPrefix(string(text), "# Conformance of file") {
		t.Fatalf("%v: %s", err, text)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--run", "("}, codeUsage, `invalid --run "("`},
		{[]string{"--run", "^nothing"}, codeUsage, "no case"},
		{[]string{"--url", fmt.Sprintf("redis://127.0.0.1:%d/0", freePort(t))}, codeUnavailable, "127.0.0.1"},
		{[]string{"--run", "^exclusion/01", "--report-md", dir}, codeFailed, dir},
	} {
		code, _, stderr := lockctl(t, nil, append([]string{"conformance", "--url", fileURL(t)}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: exit code %d, stderr %q", c.args, code, stderr)
		}
	}
}
