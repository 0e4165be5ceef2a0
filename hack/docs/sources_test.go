package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sources returns the files of the tree whose names have one of the suffixes, by path.
func sources(t *testing.T, suffixes ...string) map[string]string {
	t.Helper()
	atRoot(t)
	found := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		name := "" // of a file
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".bin"):
			return fs.SkipDir
		case !d.IsDir():
			name = d.Name()
		}
		if !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 5 {
		t.Fatalf("want the files of the tree, found %d", len(found))
	}
	return found
}

// TestDocFileLength: a file has one idea, and at most 400 lines.
func TestDocFileLength(t *testing.T) {
	for path, content := range sources(t, ".go", ".lua", ".sql", ".sh") {
		if n := strings.Count(content, "\n"); n > 400 {
			t.Errorf("%s has %d lines, want at most 400", path, n)
		}
	}
}
