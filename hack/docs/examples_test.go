package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each public package has an example whose output is checked.
func TestEachPackageHasAnExample(t *testing.T) {
	pages(t) // skips a module that stands alone
	public, checked := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() != "." && strings.HasPrefix(d.Name(), ".") || privateDir.MatchString(filepath.ToSlash(path))):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if !strings.HasSuffix(path, "_test.go") {
			public[dir] = file.Name.Name != "main"
			return nil
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
				for _, c := range file.Comments {
					if c.Pos() > f.Pos() && c.End() < f.End() && strings.HasPrefix(c.Text(), "Output:") {
						checked[dir] = true
					}
				}
			}
		}
		return nil
	})
	if err != nil || len(public) < 20 {
		t.Fatalf("%d packages, %v", len(public), err)
	}
	for dir, is := range public {
		if is && !checked[dir] {
			t.Errorf("%s: want an example with a checked output", dir)
		}
	}
}

// privateDir matches the folders of packages that nothing outside of this project imports.
var privateDir = regexp.MustCompile(`(^|/)(internal|testdata)$|^(hack|integration|bench|cmd|examples|docs)$`)
