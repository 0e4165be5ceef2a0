//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/cmdtest"
)

// Commands of readers run beside each other and exclude one without --read.
func TestRunRead(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	const waits = "echo ready; read line"
	reader := cmdtest.Begin(t, nil, "run", "--url", url, "--read", "x", "--", "sh", "-c", waits)
	reader.Stdout.Contains("ready")
	code, out, stderr := cmdtest.Exec(t, nil, "run", "--url", url, "--read", "--wait", "0", "x", "--", "echo", "beside it")
	if code != 0 || out != "beside it\n" {
		t.Errorf("a second reader: exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
	code, _, stderr = cmdtest.Exec(t, nil, "run", "--url", url, "--wait", "0", "x", "--", "true")
	if code != 75 || !strings.Contains(stderr, ", reads") {
		t.Errorf("a writer beside a reader: exit code %d, stderr %q, want 75 and the reader", code, stderr)
	}
	reader.Stdin.Close()
	reader.Wait()
	if code, _, stderr = cmdtest.Exec(t, nil, "run", "--url", url, "--wait", "0", "x", "--", "true"); code != 0 {
		t.Errorf("a writer after the reader: exit code %d, stderr %q", code, stderr)
	}
}

// Commands with permits know their slots, and inspect, list and break know all of them.
func TestRunPermits(t *testing.T) {
	t.Parallel()
	url := cmdtest.FileURL(t)
	const waits = `echo "slots $LOCK_SLOTS"; read line`
	begin := func(permits, slots string) *cmdtest.Run {
		r := cmdtest.Begin(t, []string{"LOCK_SLOTS=stale"}, "run", "--url", url, "--permits", permits, "--as", permits, "x", "--", "sh", "-c", waits)
		r.Stdout.Contains("slots " + slots + "\n")
		return r
	}
	two, one := begin("2/3", "0,1"), begin("1/3", "2")
	code, _, stderr := cmdtest.Exec(t, nil, "run", "--url", url, "--permits", "1/3", "--wait", "0", "x", "--", "true")
	if code != 75 {
		t.Errorf("a fourth permit of three: exit code %d, stderr %q, want 75", code, stderr)
	}
	for permits, want := range map[string]int{"1/4": 0, "1/2": 75} { // a request is judged by its own capacity
		code, _, stderr = cmdtest.Exec(t, nil, "run", "--url", url, "--permits", permits, "--wait", "0", "x", "--", "true")
		if code != want {
			t.Errorf("permits %s beside 3 of 3: exit code %d, stderr %q, want %d", permits, code, stderr, want)
		}
	}
	_, out, _ := cmdtest.Exec(t, nil, "inspect", "--url", url, "x", "-o", "json")
	var info lock.Info
	if err := json.Unmarshal([]byte(out), &info); err != nil || info.Holder == nil || len(info.Others) != 1 ||
		info.Holder.Share != (backend.Share{Weight: 2, Capacity: 3}) || len(info.Others[0].Slots) != 1 {
		t.Errorf("inspect: %v, %s, want both holders", err, out)
	}
	_, out, _ = cmdtest.Exec(t, nil, "inspect", "--url", url, "x")
	if !strings.Contains(out, "held by 2/3, permits 2/3 (0,1)") || !strings.Contains(out, "and by 1/3, permits 1/3 (2)") {
		t.Errorf("inspect: %q, want both holders", out)
	}
	if _, out, _ = cmdtest.Exec(t, nil, "list", "--url", url); !strings.Contains(out, "and 1 more") {
		t.Errorf("list: %q, want two holders", out)
	}
	code, out, stderr = cmdtest.Exec(t, nil, "break", "--url", url, "--yes", "x")
	if code != 0 || !strings.Contains(out, "taken from 2/3") {
		t.Errorf("break: exit code %d, stdout %q, stderr %q", code, out, stderr)
	}
	for _, r := range []*cmdtest.Run{two, one} {
		if code := r.Wait(); code != 76 {
			t.Errorf("a command whose lock was broken: exit code %d, stderr %q, want 76", code, r.Stderr.Text())
		}
	}
}
