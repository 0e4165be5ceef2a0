package release

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root    = "github.com/interlock-go/lock"
	version = "v0.1.0"
)

// checkout returns a repository of its own with the files of this one in one commit.
func checkout(t *testing.T) string {
	t.Helper()
	source := strings.TrimSpace(run(t, ".", nil, "git", "rev-parse", "--show-toplevel"))
	dir := t.TempDir()
	files := run(t, source, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for file := range strings.SplitSeq(strings.TrimRight(files, "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(source, file))
		if os.IsNotExist(err) {
			continue // removed, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"config", "user.name", "Test"}, {"config", "user.email", "test@example.org"},
		{"add", "--all"}, {"commit", "--quiet", "--message", "Before the release"},
	} {
		run(t, dir, nil, "git", args...)
	}
	return dir
}

// proxy returns a folder that serves the tags of a repository as a GOPROXY.
func proxy(t *testing.T, repository string) string {
	t.Helper()
	dir := t.TempDir()
	for tag := range strings.FieldsSeq(run(t, repository, nil, "git", "tag", "--list")) {
		folder := strings.Trim(strings.TrimSuffix(tag, version), "/")
		m := module.Version{Path: strings.TrimRight(root+"/"+folder, "/"), Version: version}
		at := filepath.Join(dir, filepath.FromSlash(m.Path), "@v")
		var archive bytes.Buffer
		if err := zip.CreateFromVCS(&archive, m, repository, tag, folder); err != nil {
			t.Fatal(err)
		}
		file := run(t, repository, nil, "git", "show", tag+":"+strings.TrimLeft(folder+"/go.mod", "/"))
		info, err := json.Marshal(map[string]string{"Version": version, "Time": "2026-01-01T00:00:00Z"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{
			"list": []byte(version + "\n"), version + ".info": info, version + ".mod": []byte(file), version + ".zip": archive.Bytes(),
		} {
			if err := os.WriteFile(filepath.Join(at, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// outsider is a user that has Go, the proxy, and nothing of this repository.
type outsider struct {
	env []string
	bin string
}

func newOutsider(t *testing.T, proxy string) outsider {
	t.Helper()
	home := t.TempDir()
	downloaded := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOMODCACHE"))
	upstream := strings.TrimSpace(run(t, ".", nil, "go", "env", "GOPROXY"))
	u := outsider{bin: filepath.Join(home, "bin")}
	u.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOFLAGS=") }),
		"GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-modcacherw -trimpath -gcflags=all=-dwarf=false", "GOBIN="+u.bin, "GOMODCACHE="+filepath.Join(home, "mod"), "GONOSUMDB="+root+","+root+"/*",
		// The modules of others are taken from the files of the local cache, if they are there.
		fmt.Sprintf("GOPROXY=file://%s,file://%s,%s", proxy, filepath.Join(downloaded, "cache", "download"), upstream),
	)
	return u
}

// module returns the folder of a new module with these files.
func (u outsider) module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, u.env, "go", "mod", "init", "example.org/app")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run returns what a program prints, and fails the test if the program does.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, stderr, err := try(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr)
	}
	return out
}

func try(t *testing.T, dir string, env []string, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}
