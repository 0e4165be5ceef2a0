//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The manual has a page for each command, with each of its flags, which a terminal
// can show and which is the same each time it is made.
func TestManual(t *testing.T) {
	t.Parallel()
	dir, again := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, again} {
		if code, out, stderr := lockctl(t, nil, "man", d); code != 0 || out+stderr != "" {
			t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, stderr)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("without groff: that the pages can be set is not tested")
	}
	request := regexp.MustCompile(`^\.(TH|SH|PP|TP|nf|fi|nh|ad l|B|BR)\b`)
	plainFlag := strings.NewReplacer(`\-`, "-")
	root := (&app{output: &output{}}).root()
	pages := 0
	for _, c := range append(root.Commands(), root) {
		pages++
		name := pageName(c) + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if other, _ := os.ReadFile(filepath.Join(again, name)); !bytes.Equal(page, other) {
			t.Errorf("%s differs each time", name)
		}
		text := string(page)
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, ".") && !request.MatchString(line) || strings.HasPrefix(line, "'") {
				t.Errorf("%s: a line that would be taken for a request: %q", name, line)
			}
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return r > '~' || r < ' ' && r != '\n' && r != '\t' }); i >= 0 {
			t.Errorf("%s: a character that not every terminal has: %q", name, text[i:min(i+20, len(text))])
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"} {
			if strings.Count(text, "\n.SH "+section+"\n") != 1 {
				t.Errorf("%s: no section %s", name, section)
			}
		}
		text = plainFlag.Replace(text)
		check := func(f *pflag.Flag) {
			if !strings.Contains(text, "--"+f.Name+" ") {
				t.Errorf("%s: no --%s", name, f.Name)
			}
		}
		c.LocalFlags().VisitAll(check)
		c.InheritedFlags().VisitAll(check)
		if groff != "" {
			cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z", filepath.Join(dir, name))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(found) != pages {
		t.Errorf("%v: %d files, want %d", err, len(found), pages)
	}
	for _, args := range [][]string{{"man"}, {"man", "a", "b"}} {
		if code, _, stderr := lockctl(t, nil, args...); code != codeUsage || !strings.Contains(stderr, "want one, the DIRECTORY") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr)
		}
	}
	if code, _, stderr := lockctl(t, nil, "man", filepath.Join(dir, "missing")); code != codeFailed || !strings.Contains(stderr, "missing") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestRoff(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", ".TH x": `\&.TH x`, "'x": `\(aqx`, `a\nb --url ~/x^y`: `a\enb \-\-url \(ti/x\(hay`, "": "",
	} {
		if got := roff(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
