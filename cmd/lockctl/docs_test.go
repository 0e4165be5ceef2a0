//go:build unix

package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// document returns the text of a file of the project.
func document(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Stat("../../go.work"); err != nil {
		t.Skip("the module stands alone, without the documentation")
	}
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// accepts reports whether a command has a flag.
func accepts(command, flag string) bool {
	err := program().Check([]string{command, flag})
	return err == nil || !strings.Contains(err.Error(), "unknown ")
}

// Each flag that a document names, alone or after a command, exists.
func TestFlagsInTheDocumentation(t *testing.T) {
	t.Parallel()
	var commands []string
	for _, c := range program().AllCommands() {
		commands = append(commands, c.Name())
	}
	span, isFlag := regexp.MustCompile("`[^`\n]+`"), regexp.MustCompile(`^-(-[a-z-]+|[a-z])$`)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md", "../../README.zh-CN.md") {
		for _, text := range span.FindAllString(document(t, strings.TrimPrefix(page, "../../")), -1) {
			words := strings.Fields(strings.Trim(text, "`"))
			of := commands
			if len(words) == 0 {
				continue
			} else if slices.Contains(commands, words[0]) {
				of = words[:1]
			} else if !isFlag.MatchString(words[0]) {
				continue // of another program
			}
			for _, word := range words {
				if !isFlag.MatchString(word) {
					continue
				}
				found++
				if !slices.ContainsFunc(of, func(command string) bool { return accepts(command, word) }) {
					t.Errorf("%s: %s: no such flag: %s", page, text, word)
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d flags were found", found)
	}
}

// Each flag that a help text names exists, and each example is valid.
func TestFlagsInTheHelp(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?:^|[\s("])(-o|--[a-z][a-z-]*)`)
	for _, c := range program().AllCommands() {
		text := c.Long
		c.Flags.VisitAll(func(f *flag.Flag) { text += "\n" + f.Usage })
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !accepts(c.Name(), m[1]) {
				t.Errorf("%s: its help names %s", c.Name(), m[1])
			}
		}
		for line := range strings.Lines(c.Example) {
			args, ok := strings.CutPrefix(strings.TrimSpace(line), "lockctl ")
			if !ok {
				continue
			}
			if err := program().Check(cmdtest.Words(args)); err != nil {
				t.Errorf("%s: %s: %v", c.Name(), args, err)
			}
		}
	}
}

// The lists of commands and of exit codes in the documents are those of the program.
func TestListsInTheDocumentation(t *testing.T) {
	t.Parallel()
	var commands, codes []string
	for _, c := range program().AllCommands() {
		if !slices.Contains([]string{"man", "version", "help", "completion"}, c.Name()) {
			commands = append(commands, c.Name())
		}
		if c.Name() == "run" {
			_, text, _ := strings.Cut(c.Long, "Exit codes:\n")
			codes = matches(text, `(?m)^ +(\d+)  `)
		}
	}
	if len(codes) != 6 {
		t.Fatalf("exit codes in the help of run: %q", codes)
	}
	for _, page := range []string{"docs/README.md", "docs/zh/README.md"} {
		row := strings.Join(matches(document(t, page), "(?m)^\\| `cmd/lockctl` \\|(.*)$"), "")
		if listed := matches(row, "`([a-z]+)`"); !equalSets(listed, commands) {
			t.Errorf("%s lists %q, want %q", page, listed, commands)
		}
	}
	doc := strings.Join(matches(document(t, "lockcmd/doc.go"), `(?s)the commands of lockctl: (.*?)\.`), "")
	for _, c := range program().AllCommands() {
		if c.Name() != "help" && !slices.Contains(strings.FieldsFunc(doc, func(r rune) bool { return r < 'a' || r > 'z' }), c.Name()) {
			t.Errorf("lockcmd/doc.go does not list %s", c.Name())
		}
	}
	_, text, _ := strings.Cut(document(t, "docs/operations.md"), "Exit codes of `lockctl run`:")
	table := strings.Join(matches(text, `(?m)^\| ([\d, ]+) \|`), ", ")
	if listed := strings.Split(table, ", "); !equalSets(listed, codes) {
		t.Errorf("docs/operations.md lists the exit codes %q, the help of run %q", listed, codes)
	}
	for _, code := range []int{lockcmd.ExitUsage, lockcmd.ExitUnavailable, lockcmd.ExitNotAcquired, lockcmd.ExitLost, lockcmd.ExitNotExecutable, lockcmd.ExitNotFound} {
		if !slices.Contains(codes, strconv.Itoa(code)) {
			t.Errorf("the help of run does not list the exit code %d", code)
		}
	}
}

// matches returns the first group of each match.
func matches(text, pattern string) (found []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

func equalSets(x, y []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
}

// Each lockctl command in the documentation has existing flags and valid arguments. The
// commands are not run.
func TestCommandsInTheDocumentation(t *testing.T) {
	t.Parallel()
	cmdtest.Documented(t, "../..", "lockctl", 15, program().Check)
}

// The first command of the README prints a token.
func TestReadmeCommand(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`(?m)^    go run \./cmd/lockctl (.*?) +#`).FindStringSubmatch(document(t, "README.md"))
	if m == nil {
		t.Fatal("the README shows no command")
	}
	code, out, stderr := cmdtest.Exec(t, []string{"XDG_STATE_HOME=" + t.TempDir(), "LOCK_URL="}, cmdtest.Words(m[1])...)
	if code != 0 || !regexp.MustCompile(`^token \d+\n$`).MatchString(out) {
		t.Errorf("%s: exit code %d, stdout %q, stderr %q", m[1], code, out, stderr)
	}
}
