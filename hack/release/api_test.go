package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPI: an incompatible change is found in each released module, and only a version that may have it is released.
func TestAPI(t *testing.T) {
	program := filepath.Join(t.TempDir(), "apidiff")
	build := exec.Command("go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-o", program, "golang.org/x/exp/cmd/apidiff")
	build.Dir, build.Env = filepath.Join("..", "tools"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("APIDIFF", program)
	const both, changed = "func F() {}\nfunc G() {}\n", "func F() {}\nfunc G(int) {}\n"
	for name, c := range map[string]struct {
		tag, next  string
		core, node string // the declarations of the two modules
		want       string // in the error of the release; "" for none
	}{
		"the same":                     {"v0.1.0", "v0.1.1", both, both, ""},
		"a new function":               {"v1.1.0", "v1.1.1", both + "func H() {}\n", both, ""},
		"a patch without a function":   {"v0.1.0", "v0.1.1", "func F() {}\n", both, "not:\n" + root + "\n- G: removed"},
		"a patch of another module":    {"v0.1.0", "v0.1.1", both, changed, "not:\n" + root + "/node\n- G: changed from func() to func(int)"},
		"a minor version before v1":    {"v0.1.0", "v0.2.0", changed, changed, ""},
		"a minor version from v1 on":   {"v1.0.0", "v1.1.0", changed, both, "v1.1.0 must be compatible with v1.0.0"},
		"the first version from v1 on": {"v0.9.1", "v1.0.0", changed, both, ""},
	} {
		t.Run(name, func(t *testing.T) {
			modules := func(core, node string) {
				write(t, "lock.go", "package lock\n"+core)
				write(t, "node/node.go", "package node\n"+node)
				call(t, "add", ".")
				call(t, "commit", "--quiet", "--allow-empty", "--message", "change")
			}
			repository(t)
			write(t, "go.work", "go 1.25.0\nuse (\n.\n./node\n)\n")
			write(t, "CHANGELOG.md", unreleased)
			write(t, "go.mod", "module "+root+"\ngo 1.25.0\n")
			write(t, "node/go.mod", "module "+root+"/node\ngo 1.25.0\n")
			modules(both, both)
			call(t, "tag", c.tag)
			call(t, "tag", "node/"+c.tag)
			write(t, "new/go.mod", "module "+root+"/new\ngo 1.25.0\n") // has no tag
			write(t, "go.work", "go 1.25.0\nuse (\n.\n./node\n./new\n)\n")
			modules(c.core, c.node)
			err := checkAPI(c.next)
			if c.want != "" {
				err = release{version: c.next, skipTests: true}.run()
			}
			switch {
			case c.want == "" && err != nil:
				t.Errorf("want no error, got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("want an error with %q, got %v", c.want, err)
			}
			if last := strings.HasPrefix(c.tag, "v1") && c.want != ""; (reportAPI() != nil) != last {
				t.Errorf("make api: want an error: %v", last)
			}
		})
	}
}
