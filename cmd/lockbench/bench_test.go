//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestBench(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jsonFile, htmlFile := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html")
	args := []string{
		"bench", "--url", "memory=mem://bench", "--url", cmdtest.FileURL(t), "--scenario", "uncontended,contended", "--workers", "2,4",
		"--for", "50ms", "--hold", "0s", "--think", "1ms", "--rounds", "1",
	}
	code, out, stderr := cmdtest.Exec(t, nil, append(args, "--report-json", jsonFile, "--report-html", htmlFile)...)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"uncontended: one worker", "contended 2: ", "contended 4: ", "memory", "file"} {
		if !strings.Contains(out, want) {
			t.Errorf("stdout lacks %q:\n%s", want, out)
		}
	}
	in, err := os.Open(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := measure.Read(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 2*3 { // uncontended is the same for 2 workers and 4
		t.Errorf("%d measurements, want 6", len(r.Runs))
	}
	if page, err := os.ReadFile(htmlFile); err != nil || !strings.Contains(string(page), "<svg") {
		t.Errorf("HTML report: %v", err)
	}
	code, out, stderr = cmdtest.Exec(t, nil, append(args, "--compare", jsonFile, "-o", "json")...)
	if code != 0 || stderr != "" || !json.Valid([]byte(out)) {
		t.Errorf("with --compare and -o json: exit code %d, stderr %q, stdout %.100q", code, stderr, out)
	}
}

// Scenarios of growth are measured once, for each number.
func TestBenchGrowth(t *testing.T) {
	t.Parallel()
	htmlFile := filepath.Join(t.TempDir(), "r.html")
	code, out, stderr := cmdtest.Exec(t, nil, "bench", "--url", "mem://growth", "--url", cmdtest.FileURL(t), "--scenario", "waiters,dead,idle-processes",
		"--workers", "2,4", "--for", "50ms", "--settle", "0s", "--report-html", htmlFile)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"waiters: N workers", "CYCLES A SECOND", "dead: from Unlock", "PROCESSES KILLED", "idle-processes: "} {
		if !strings.Contains(out, want) {
			t.Errorf("stdout lacks %q:\n%s", want, out)
		}
	}
	if page, err := os.ReadFile(htmlFile); err != nil || strings.Count(string(page), "<svg") != 2+3+2 {
		t.Errorf("HTML report: want a chart a figure: %v", err)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	old := filepath.Join(t.TempDir(), "old.json")
	if err := os.WriteFile(old, []byte(`{"format":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--rounds", "0"}, "--rounds"},
		{[]string{"--scenario", "none"}, "unknown scenario"},
		{[]string{"--scenario", ""}, "scenario"},
		{[]string{"--workers", "1"}, "2 or more"},
		{[]string{"--scenario", "dead", "--workers", "0"}, "1 to 200"},
		{[]string{"--url", "a=mem://x", "--url", "a=mem://y"}, `named "a"`},
		{[]string{"--url", "nonsense"}, "scheme"},
		{[]string{"--url", "mem://x", "--delay", "2ms"}, "delay"},
		{[]string{"--url", "a=mem:"}, "want mem://NAME"},
		{[]string{"--url", "redis://h", "--delay", "2us"}, "whole milliseconds"},
		{[]string{"--compare", old}, "format 7"},
		{[]string{"--compare", old + "x"}, "--compare"},
		{[]string{"extra"}, "extra"},
	} {
		args := append([]string{"bench"}, c.args...)
		if !strings.Contains(strings.Join(args, " "), "--url") {
			args = append(args, "--url", "mem://x")
		}
		code, out, stderr := cmdtest.Exec(t, nil, args...)
		if code != lockcmd.ExitUsage || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q, want usage with %q", c.args, code, out, stderr, c.want)
		}
	}
}

func TestDisplayArgs(t *testing.T) {
	got := strings.Join(displayArgs([]string{
		"/tmp/lockbench", "bench", "--url", "redis://u:hunter2@h:1/0?x=hunter2", "--url=b=etcd://u:hunter2@h", "--url", "c=zk://u:hunter2@a,b/r", "--for", "1s",
	}), " ")
	want := "lockbench bench --url redis://h:1/0 --url=b=etcd://h --url c=zk://a,b/r --for 1s"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
