package cmdtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// Documented calls check with the arguments of each command of a program that the
// documents below top show. It fails if there are fewer than atLeast.
func Documented(t *testing.T, top, program string, atLeast int, check func(args []string) error) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(top, "go.work")); err != nil {
		t.Skip("the module stands alone, without the documentation")
	}
	forms := []*regexp.Regexp{
		regexp.MustCompile(`(?m)^    (?:\S+=\S+ )?(?:go run \./cmd/)?` + program + ` (.*)$`),
		regexp.MustCompile("`(?:go run \\./cmd/)?" + program + " ([^`]*)`"),
	}
	n := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != top && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // the tree of the tests
		for _, form := range forms {
			for _, m := range form.FindAllStringSubmatch(string(text), -1) {
				if strings.Contains(m[1], "...") || strings.Contains(m[1], "…") {
					continue // an abbreviation
				}
				n++
				args := Words(m[1])
				if len(args) == 1 { // the name of a command, not a command line
					args = append(args, "--help")
				}
				if err := check(args); err != nil {
					t.Errorf("%s: %s %s: %v", path, program, m[1], err)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < atLeast {
		t.Errorf("only %d commands were found", n)
	}
}

// Words splits a line as a shell does, up to the end of the command or a comment.
func Words(line string) (args []string) {
	for _, w := range word.FindAllString(line, -1) {
		if w == "|" || w == "&&" || strings.HasPrefix(w, ">") || strings.HasPrefix(w, "#") {
			break
		}
		args = append(args, strings.Trim(w, `'"`))
	}
	return args
}
