package docs_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/interlock-go/lock/backend"
)

// pages returns the documentation, by path: every Markdown file but the changelog,
// which is about earlier versions.
func pages(t *testing.T) map[string]string {
	t.Helper()
	atRoot(t)
	if _, err := os.Stat("redislock"); err != nil {
		t.Skip("the module stands alone, without the drivers that the pages are about")
	}
	out := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".md" || path == "CHANGELOG.md":
			return nil
		}
		text, err := os.ReadFile(path)
		out[filepath.ToSlash(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d pages were found", len(out))
	}
	return out
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	code    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// targets returns the names of a page's headings in links.
func targets(text string) map[string]bool {
	out := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		out["#"+strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, h[1])] = true
	}
	return out
}

// Each link to another file leads to one that exists, and to a heading if it names
// one; and the tables of contents have a link to each page.
func TestDocLinks(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		text = code.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, fragment, _ := strings.Cut(l[1], "#")
			target := path
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: a link to %s: %v", path, l[1], err)
			} else if fragment != "" && !targets(all[target])["#"+fragment] {
				t.Errorf("%s: a link to %s, which has no such heading", path, l[1])
			}
		}
	}
	english := linked(all, "README.md", "docs/README.md", "docs/backends/README.md")
	chinese := linked(all, "README.zh-CN.md", "docs/zh/README.md", "docs/zh/backends/README.md")
	for path := range all {
		name, ok := strings.CutPrefix(path, "docs/")
		if !ok || strings.HasPrefix(name, "adr/") || strings.HasPrefix(name, "zh/") {
			continue
		}
		if !english[path] {
			t.Errorf("no table of contents has a link to %s", path)
		}
		if translated := "docs/zh/" + name; all[translated] != "" {
			path = translated
		}
		if !chinese[path] {
			t.Errorf("no Chinese table of contents has a link to %s", path)
		}
	}
}

// linked returns the files to which the pages have links.
func linked(all map[string]string, from ...string) map[string]bool {
	to := map[string]bool{}
	for _, page := range from {
		for _, l := range link.FindAllStringSubmatch(all[page], -1) {
			file, _, _ := strings.Cut(l[1], "#")
			to[filepath.ToSlash(filepath.Join(filepath.Dir(page), file))] = true
		}
	}
	return to
}

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	imports = regexp.MustCompile(`(?ms)\A((?:import (?:"[^\n]*|\(.*?^\))\n+)*)(.*)\z`)
	quoted  = regexp.MustCompile("(?s)From \\[([^]]*)\\][^\n]*\n\n\\z")
)

// Each block of Go is a file, or declarations, or statements.
func TestDocGoBlocksParse(t *testing.T) {
	n := 0
	for path, text := range pages(t) {
		for _, b := range goBlock.FindAllStringSubmatch(text, -1) {
			n++
			if err := parses(b[1]); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, b[1])
			}
		}
	}
	if n < 12 {
		t.Errorf("only %d blocks were found", n)
	}
}

func parses(src string) error {
	parse := func(src string) error {
		_, err := parser.ParseFile(token.NewFileSet(), "block.go", src, parser.AllErrors)
		return err
	}
	if strings.HasPrefix(src, "package ") {
		return parse(src)
	}
	if parse("package p\n"+src) == nil {
		return nil
	}
	parts := imports.FindStringSubmatch(src)
	return parse("package p\n" + parts[1] + "func _() {\n" + parts[2] + "}\n")
}

// Each block that says which file it is from is a part of that file, which is
// compiled; on these pages every block has to say so.
func TestDocGoBlocksAreCompiled(t *testing.T) {
	lines := func(s string) string {
		out := strings.Split(s, "\n")
		for i := range out {
			out[i] = strings.TrimSpace(out[i])
		}
		return "\n" + strings.Trim(strings.Join(out, "\n"), "\n") + "\n"
	}
	all := pages(t)
	must := map[string]int{"docs/fencing.md": 7, "docs/writing-a-driver.md": 5, "docs/tutorial.md": 4, "docs/guides.md": 9, "docs/testing.md": 5}
	for path, text := range all {
		from := 0
		blocks := goBlock.FindAllStringSubmatchIndex(text, -1)
		for _, b := range blocks {
			q := quoted.FindStringSubmatch(text[:b[0]])
			if q == nil {
				continue
			}
			from++
			source, err := os.ReadFile(q[1])
			if err != nil {
				t.Errorf("%s: %v", path, err)
			} else if block := text[b[2]:b[3]]; !strings.Contains(lines(string(source)), lines(block)) {
				t.Errorf("%s: not in %s:\n%s", path, q[1], block)
			}
		}
		if least, ok := must[path]; ok && (from != len(blocks) || from < least) {
			t.Errorf("%s: %d blocks of code, %d with the file that they are from", path, len(blocks), from)
		}
	}
	for path := range must {
		if all[path] == "" {
			t.Errorf("%s is missing", path)
		}
	}
}

// What both READMEs show compiles: a program, without the import of its driver, and
// statements with what the reader is meant to have.
func TestDocReadmeCompiles(t *testing.T) {
	const reader = `
		var ctx context.Context
		var c *lock.Client
		func lead(context.Context) error
		func job(context.Context) error`
	fset := token.NewFileSet()
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	driver := regexp.MustCompile(`(?m)^\s*_ "[^"]*".*\n`)
	for _, path := range []string{"README.md", "README.zh-CN.md"} {
		blocks := goBlock.FindAllStringSubmatch(pages(t)[path], -1)
		if len(blocks) != 2 {
			t.Errorf("%s: %d blocks", path, len(blocks))
		}
		for _, b := range blocks {
			src := driver.ReplaceAllString(b[1], "")
			if !strings.HasPrefix(src, "package main\n") {
				src = "package p\n"
				for _, p := range []string{"", "/elect", "/schedule"} {
					src += `import "github.com/interlock-go/lock` + p + "\"\n"
				}
				src += "import \"context\"\nimport \"time\"\n" + reader + "\nfunc _() {\n" + b[1] + "}\n"
			}
			file, err := parser.ParseFile(fset, path, src, 0)
			if err == nil {
				_, err = conf.Check("p", fset, []*ast.File{file}, nil)
			}
			if err != nil {
				t.Errorf("%s: %v in\n%s", path, err, b[1])
			}
		}
	}
}

var symbol = regexp.MustCompile(`\b(lock|locktest|elect|schedule|migrate|backend|fence|conformance|memlock|filelock|redislock|redlock|etcdlock|zklock|pglock|mysqllock|memcachelock|natslock|s3lock)\.([A-Z]\w*)`)

// Each name of ours that a page mentions is exported by that package.
func TestDocSymbols(t *testing.T) {
	exported := map[string]map[string]bool{}
	for path, text := range pages(t) {
		if strings.HasPrefix(path, "docs/adr/") {
			continue // decisions, some of them replaced
		}
		for _, m := range symbol.FindAllStringSubmatch(text, -1) {
			if exported[m[1]] == nil {
				exported[m[1]] = exports(t, m[1])
			}
			// another project's package of the same name is recognised by its own import path
			if !exported[m[1]][m[2]] && !strings.Contains(text, "<!-- not ours: "+m[0]+" -->") {
				t.Errorf("%s: there is no %s", path, m[0])
			}
		}
	}
}

func exports(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	dir := pkg
	switch pkg {
	case "lock":
		dir = "."
	case "redlock":
		dir = "redislock/redlock"
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					out[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						out[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							out[n.Name] = true
						}
					}
				}
			}
		}
	}
	return out
}

var backendURL = regexp.MustCompile(`\b(?:mem|file|redis|rediss|redis\+sentinel|redis\+cluster|redlock|etcds?|zk|mysql|mariadb|postgres|postgresql)://[^\s"'` + "`" + `<>|,;)]*[^\s"'` + "`" + `<>|,;).]`)

// Each URL of a backend that a page shows can be parsed.
func TestDocURLs(t *testing.T) {
	n := 0
	for path, text := range pages(t) {
		for _, u := range backendURL.FindAllString(text, -1) {
			if strings.ContainsAny(u, "[…") || strings.Contains(u, "...") {
				continue // a form, not a URL
			}
			n++
			if _, err := backend.ParseURL(u); err != nil {
				t.Errorf("%s: %s: %v", path, u, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d URLs were found", n)
	}
}

// There are three commands for a newcomer to type, in both languages the same.
func TestDocNewcomersCommands(t *testing.T) {
	all := pages(t)
	commands := func(path string) (out []string) {
		for _, line := range strings.Split(fence.ReplaceAllString(all[path], ""), "\n") {
			if c, ok := strings.CutPrefix(line, "    "); ok {
				c, _, _ = strings.Cut(c, " #")
				out = append(out, strings.TrimSpace(c))
			}
		}
		return out
	}
	want := []string{"go run ./examples/counter", "go run ./cmd/lockctl run nightly -- sh -c 'echo token $LOCK_TOKEN'", "make test"}
	for _, path := range []string{"README.md", "README.zh-CN.md"} {
		if got := commands(path); !slices.Equal(got, want) {
			t.Errorf("%s: commands %q, want %q", path, got, want)
		}
	}
}

// ARCHITECTURE.md names the files of the core in the order in which they run.
func TestDocArchitecture(t *testing.T) {
	text := pages(t)["ARCHITECTURE.md"]
	named := regexp.MustCompile("`([a-z/_]+\\.go)`").FindAllStringSubmatch(text, -1)
	if len(named) < 20 {
		t.Fatalf("ARCHITECTURE.md names %d files", len(named))
	}
	seen := map[string]bool{}
	for _, m := range named {
		seen[m[1]] = true
		if _, err := os.Stat(m[1]); err != nil {
			t.Error(err)
		}
	}
	for _, dir := range []string{"engine", "handoff", "renewal", "cleanup", "task", "trust"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(f string) bool { return strings.HasPrefix(f, "internal/"+dir+"/") }) {
			t.Errorf("ARCHITECTURE.md names no file of internal/%s", dir)
		}
	}
}
