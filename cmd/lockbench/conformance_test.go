//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	md, js := filepath.Join(dir, "r.md"), filepath.Join(dir, "r.json")
	code, out, stderr := cmdtest.Exec(t, nil, "conformance", "--url", cmdtest.FileURL(t), "--run", "^exclusion/0[12]", "--report-md", md, "--report-json", js)
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
		{[]string{"--run", "("}, lockcmd.ExitUsage, `invalid --run "("`},
		{[]string{"--run", "^nothing"}, lockcmd.ExitUsage, "no case"},
		{[]string{"--url", fmt.Sprintf("redis://127.0.0.1:%d/0", clienttest.FreePort())}, lockcmd.ExitUnavailable, "127.0.0.1"},
		{[]string{"--run", "^exclusion/01", "--report-md", dir}, lockcmd.ExitFailed, dir},
	} {
		code, _, stderr := cmdtest.Exec(t, nil, append([]string{"conformance", "--url", cmdtest.FileURL(t)}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: exit code %d, stderr %q", c.args, code, stderr)
		}
	}
}
