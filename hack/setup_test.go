// Package hack_test tests hack/setup.sh on machines that are made of fake programs.
package hack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tools are the programs of this machine that the script may use.
var tools = []string{"bash", "sh", "dirname", "mktemp", "rm", "grep", "sed", "awk", "sleep", "tail", "cat", "tr", "printf", "kill", "nice", "head", "mkdir", "tar", "env", "flock", "touch"}

// fakes are programs that note their call. What they print and return is that of a machine that has everything.
var fakes = map[string]string{
	"go": "", "gcc": "", "make": "", "dockerd": "", "sudo": "exit 1", "apt-get": "exit 100", "apt-cache": "exit 1", "apt-config": "", "mmdebstrap": "exit 1",
	"id":     "echo 0",
	"docker": "exit 0", "redis-server": "", "memcached": "",
}

// setup runs the script with a PATH of fakes. Each entry of change replaces one, or removes it if it is "-".
func setup(t *testing.T, tier string, change map[string]string, env ...string) (out string, calls []string, failed bool) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range fakes {
		if c, ok := change[name]; ok {
			body = c
		}
		if body == "-" {
			continue
		}
		script := fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>%s\n%s\n", name, log, body)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), "setup.sh", tier)
	cmd.Env = append([]string{"PATH=" + bin, "TMPDIR=" + dir}, env...)
	text, err := cmd.CombinedOutput()
	called, _ := os.ReadFile(log)
	return string(text), strings.Split(strings.TrimSpace(string(called)), "\n"), err != nil
}

func TestSetup(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed")
	}
	changes := func(c string) bool { // of the machine
		return slices.ContainsFunc([]string{"apt-get", "sudo", "mmdebstrap", "docker build", "docker pull", "docker import"}, func(p string) bool {
			return strings.HasPrefix(c, p)
		})
	}
	for _, tt := range []struct {
		name   string
		tier   string
		change map[string]string
		env    []string
		want   []string // lines, each with MISSING
		quiet  bool     // nothing may be installed or built
	}{
		{"everything is there", "test", nil, nil, nil, true},
		{"an unknown tier", "tests", nil, nil, []string{`tier "tests": want toolchain, test or all`}, true},
		{"no Go", "test", map[string]string{"go": "-", "gcc": "-"}, nil, []string{"MISSING go: install Go from https://go.dev/dl/"}, true},
		{
			"Docker is not permitted", "test",
			map[string]string{"docker": "echo 'permission denied while trying to connect to the docker API' >&2; exit 1", "gcc": "-"},
			nil,
			[]string{"MISSING docker: this user may not use Docker"},
			true,
		},
		{
			"no root and no permission to use sudo", "test",
			map[string]string{"gcc": "-", "id": "echo 1000", "sudo": "exit 0"},
			nil,
			[]string{"MISSING gcc libc6-dev: install these packages, or run hack/setup.sh as root or with SETUP_SUDO=1"},
			true,
		},
		{
			"no root, and a registry that answers", "test",
			map[string]string{
				"id": "echo 1000", "sudo": "exit 0", "mmdebstrap": "-",
				"docker": `case $1 in version) echo 28 ;; image) exit 1 ;; pull) echo "Pulling from x" ;; esac`,
			},
			[]string{"LOCK_TEST_ETCD_3_7_URL=etcd://127.0.0.1:2379"},
			nil,
			false,
		},
		{
			"packages cannot be installed", "toolchain",
			map[string]string{"gcc": "-"},
			nil,
			[]string{"MISSING gcc libc6-dev: could not be installed"},
			false,
		},
		{
			"no image can be had", "test",
			map[string]string{"docker": `case $1 in version) echo 28 ;; *) exit 1 ;; esac`},
			[]string{"LOCK_TEST_REDIS_8_URL=redis://127.0.0.1:6379/0"},
			[]string{"MISSING etcd-3-7: its image could not", "MISSING nats-2: nats:2 could not", "MISSING zookeeper-3-9: zookeeper:3.9 could not", "MISSING postgres-18:", "MISSING mariadb-11:", "MISSING mysql-9:"},
			false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, calls, failed := setup(t, tt.tier, tt.change, tt.env...)
			if failed != (len(tt.want) > 0) {
				t.Errorf("failed: got %v", failed)
			}
			for _, want := range tt.want {
				if strings.Count(out, want) != 1 {
					t.Errorf("want one line with %q", want)
				}
			}
			if n := strings.Count(out, "MISSING"); n > len(tt.want) {
				t.Errorf("%d things are missing, want %d", n, len(tt.want))
			}
			if i := slices.IndexFunc(calls, changes); tt.quiet && i >= 0 {
				t.Errorf("nothing may be changed, it called %q", calls[i])
			}
			if strings.Contains(out, "No such file") {
				t.Error("it looked for a file that was not there")
			}
			if tt.change["id"] != "" && slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "sudo") }) {
				t.Error("it called sudo without SETUP_SUDO=1")
			}
			if t.Failed() {
				t.Logf("output:\n%s\ncalls:\n%s", out, strings.Join(calls, "\n"))
			}
		})
	}
}
