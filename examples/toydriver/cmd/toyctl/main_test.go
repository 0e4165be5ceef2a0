//go:build unix

package main

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/interlock-go/lock/examples/toydriver/plain"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m, ".")) }

// toyctl runs commands under a lock of the toy server. The commands that the driver does
// not support are refused, and the program knows no other scheme.
func TestCommands(t *testing.T) {
	server := httptest.NewServer(plain.NewServer())
	defer server.Close()
	url := []string{"LOCK_URL=" + strings.Replace(server.URL, "http://", "toy://", 1)}
	for _, c := range []struct {
		name           string
		env, args      []string
		code           int
		stdout, stderr string // a part of each
	}{
		{"run", url, []string{"run", "nightly", "--", "sh", "-c", "echo token $LOCK_TOKEN"}, 0, "token 1\n", ""},
		{
			"nested run", url, []string{"run", "-q", "a", "--", cmdtest.Binary(), "run", "--wait", "0", "a", "--", "true"},
			lockcmd.ExitNotAcquired, "", `toyctl: "a" is held by pid `,
		},
		{"another name", url, []string{"run", "a", "--", cmdtest.Binary(), "run", "--wait", "0", "b", "--", "echo", "ran"}, 0, "ran\n", ""},
		{"inspect", url, []string{"inspect", "nightly"}, lockcmd.ExitUnavailable, "", "toyctl: inspect"},
		{"ping", url, []string{"ping"}, lockcmd.ExitUnavailable, "", "toyctl: ping"},
		{"another scheme", nil, []string{"ping", "--url", "redis://localhost"}, lockcmd.ExitUsage, "", "toy"},
		{"no URL", nil, []string{"ping"}, lockcmd.ExitUsage, "", "want --url or LOCK_URL, with one of the schemes [toy]"},
		{"no schemas", nil, []string{"schema"}, lockcmd.ExitUsage, "", "unknown command"},
		{"version", nil, []string{"version"}, 0, ", for toy\n", ""},
		{"help", nil, []string{"help", "run"}, 0, "  toyctl run nightly -- backup.sh\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := cmdtest.Exec(t, c.env, c.args...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || (stderr == "") != (c.stderr == "") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if strings.Contains(stdout+stderr, "lockctl") {
				t.Errorf("the name of another program: %q %q", stdout, stderr)
			}
		})
	}
}
