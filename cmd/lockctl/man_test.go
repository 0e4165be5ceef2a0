//go:build unix

package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

// The manual has a page for each command with all its flags and the text of its help. Each terminal can show it,
// and it is the same each time.
func TestManual(t *testing.T) {
	t.Parallel()
	dir, again := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, again} {
		if code, out, stderr := cmdtest.Exec(t, nil, "man", d); code != 0 || out+stderr != "" {
			t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, stderr)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Log("without groff: that the pages can be set is not tested")
	}
	request := regexp.MustCompile(`^\.(TH|SH|PP|TP|nf|fi|nh|ad l|B|BR)\b`)
	plain := strings.NewReplacer(`\-`, "-", `\e`, `\`, `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\&`, "")
	help := map[string]string{}                                                      // by page
	flags := map[string][]string{"lockctl.1": {"url", "output", "quiet", "verbose"}} // by page
	for _, c := range program().AllCommands() {
		of := []string{"url", "output", "quiet", "verbose", "help"}
		c.Flags.VisitAll(func(f *flag.Flag) { of = append(of, f.Name) })
		flags["lockctl-"+c.Name()+".1"] = of
		_, help["lockctl-"+c.Name()+".1"], _ = cmdtest.Exec(t, nil, "help", c.Name())
	}
	for name, of := range flags {
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
		text = plain.Replace(text)
		for line := range strings.Lines(help[name]) {
			words := regexp.MustCompile(` {3,}`).Split(strings.TrimSpace(line), -1) // a flag and its description
			if said := words[len(words)-1]; !strings.HasSuffix(said, ":") && !strings.Contains(text, said) {
				t.Errorf("%s: the help says %q", name, said)
			}
		}
		for _, f := range of {
			if !regexp.MustCompile(`\n\.B (-\w, )?--` + f + `( [\w/]+)?\n`).MatchString(text) {
				t.Errorf("%s: no --%s", name, f)
			}
		}
		if groff != "" {
			cmd := exec.Command(groff, "-man", "-Tascii", "-ww", "-z", filepath.Join(dir, name))
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(found) != len(flags) {
		t.Errorf("%v: %d files, want %d", err, len(found), len(flags))
	}
	for _, args := range [][]string{{"man"}, {"man", "a", "b"}} {
		if code, _, stderr := cmdtest.Exec(t, nil, args...); code != lockcmd.ExitUsage || !strings.Contains(stderr, "want one, the DIRECTORY") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, stderr)
		}
	}
	if code, _, stderr := cmdtest.Exec(t, nil, "man", filepath.Join(dir, "missing")); code != lockcmd.ExitFailed || !strings.Contains(stderr, "missing") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
