package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes the current folder a repository with one commit that make test has passed.
func repository(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"} {
		t.Setenv(name, "release test")
	}
	for _, name := range []string{"GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "release@example.com")
	}
	write(t, ".gitignore", ".bin/\n")
	call(t, "init", "--quiet")
	call(t, "add", ".")
	call(t, "commit", "--quiet", "--message", "first")
	write(t, ".bin/tested", call(t, "rev-parse", "HEAD^{tree}")+"\n")
}

func call(t *testing.T, args ...string) string {
	t.Helper()
	out, err := git(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCheck: only a committed tree that make test has passed is released, and each version once.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(t *testing.T)
		skipTests bool
		want      string // in the error; "" for none
	}{
		"passed":          {change: func(*testing.T) {}},
		"another tag":     {change: func(t *testing.T) { call(t, "tag", "v0.1.0") }},
		"changed":         {change: func(t *testing.T) { write(t, "new.go", "package x\n") }, want: "new.go"},
		"tag exists":      {change: func(t *testing.T) { call(t, "tag", "v0.2.0") }, want: "the tag v0.2.0 exists"},
		"not tested":      {change: func(t *testing.T) { _ = os.Remove(".bin/tested") }, want: "run it"},
		"other tree":      {change: func(t *testing.T) { write(t, ".bin/tested", "another\n") }, want: "run it"},
		"rehearsal":       {change: func(t *testing.T) { _ = os.Remove(".bin/tested") }, skipTests: true},
		"dirty rehearsal": {change: func(t *testing.T) { write(t, ".gitignore", "") }, skipTests: true, want: ".gitignore"},
	} {
		t.Run(name, func(t *testing.T) {
			repository(t)
			c.change(t)
			err := release{version: "v0.2.0", skipTests: c.skipTests}.check()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("want no error, got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("want an error with %q, got %v", c.want, err)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	repository(t)
	for _, version := range []string{"", "0.1.0", "v0.1", "v01.0.0", "v0.1.0+build", "v2.0.0", "v0.1.0; true"} {
		if err := (release{version: version}).run(); err == nil || !strings.Contains(err.Error(), "want v0.Y.Z or v1.Y.Z") {
			t.Errorf("version %q: want an error that says what is accepted, got %v", version, err)
		}
	}
	if tags := call(t, "tag"); tags != "" {
		t.Errorf("want no tag, got %s", tags)
	}
}
