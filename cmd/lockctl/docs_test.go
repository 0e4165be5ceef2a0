//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	shownLine   = regexp.MustCompile(`(?m)^    (?:\S+=\S+ )?(?:go run \./cmd/)?lockctl (.*)$`)
	shownInline = regexp.MustCompile("`(?:go run \\./cmd/)?lockctl ([^`]*)`")
	word        = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// Each lockctl command that the documentation shows has these flags and takes these
// arguments. None is run.
func TestCommandsInTheDocumentation(t *testing.T) {
	t.Parallel()
	const top = "../.."
	if _, err := os.Stat(filepath.Join(top, "go.work")); err != nil {
		t.Skip("the module stands alone, without the documentation")
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
		text, err := os.ReadFile(path)
		for _, re := range []*regexp.Regexp{shownLine, shownInline} {
			for _, m := range re.FindAllStringSubmatch(string(text), -1) {
				if strings.Contains(m[1], "...") || strings.Contains(m[1], "…") {
					continue // a form
				}
				n++
				if err := understood(m[1]); err != nil {
					t.Errorf("%s: lockctl %s: %v", path, m[1], err)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 15 {
		t.Errorf("only %d commands were found", n)
	}
}

// What the README has a newcomer type does what it says.
func TestReadmeCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Skip("the module stands alone, without the documentation")
	}
	m := regexp.MustCompile(`(?m)^    go run \./cmd/lockctl (.*?) +#`).FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("the README shows no command")
	}
	code, out, stderr := lockctl(t, []string{"XDG_STATE_HOME=" + t.TempDir(), envURL + "="}, words(m[1])...)
	if code != 0 || !regexp.MustCompile(`^token \d+\n$`).MatchString(out) {
		t.Errorf("%s: exit code %d, stdout %q, stderr %q", m[1], code, out, stderr)
	}
}

// words splits a line as a shell would, up to a pipe or a comment.
func words(line string) (args []string) {
	for _, w := range word.FindAllString(line, -1) {
		if w == "|" || w == ">" || strings.HasPrefix(w, "#") {
			break
		}
		args = append(args, strings.Trim(w, `'"`))
	}
	return args
}

func understood(line string) error {
	a := &app{output: &output{streams: streams{os.Stdin, os.Stdout, os.Stderr}}, getenv: func(string) string { return "" }}
	cmd, rest, err := a.root().Find(words(line))
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if len(rest) == 0 { // the command is named, and not shown
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
