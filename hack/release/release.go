package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// release is one run of the command, in the current folder.
type release struct {
	version   string
	date      time.Time
	skipTests bool
}

var validVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func (r release) run() error {
	if !validVersion.MatchString(r.version) || !strings.HasPrefix(r.version, "v0.") && !strings.HasPrefix(r.version, "v1.") {
		return fmt.Errorf("version %q: want v0.Y.Z or v1.Y.Z; a later major version needs other module paths", r.version)
	}
	if err := r.check(); err != nil {
		return err
	}
	if err := checkAPI(r.version); err != nil {
		return err
	}
	modules, err := published()
	if err != nil {
		return err
	}
	restored, err := r.prepare(modules)
	if err != nil {
		return fmt.Errorf("%w; git checkout . restores the work tree", err)
	}
	if _, err := git("commit", "--quiet", "--all", "--message", "Release "+r.version); err != nil {
		return err
	}
	var tags []string
	for _, m := range modules {
		tag := m.tag(r.version)
		if _, err := git("tag", "--annotate", "--message", m.path+" "+r.version, tag); err != nil {
			return err
		}
		tags = append(tags, tag)
	}
	for file, text := range restored {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		if _, err := git("add", file); err != nil {
			return err
		}
	}
	if _, err := git("commit", "--quiet", "--message", "After "+r.version+": the commands are built from the work tree again"); err != nil {
		return err
	}
	fmt.Printf("released %s; to publish it:\n\tgit push --atomic origin HEAD %s\n", r.version, strings.Join(tags, " "))
	return nil
}

// check returns an error if the work tree must not be released.
func (r release) check() error {
	status, err := git("status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return errors.New("the work tree has changes that are not committed:\n" + status)
	}
	tags, err := git("tag", "--list", r.version)
	switch {
	case err != nil:
		return err
	case tags != "":
		return fmt.Errorf("the tag %s exists", r.version)
	}
	if r.skipTests {
		return nil
	}
	tree, err := git("rev-parse", "HEAD^{tree}")
	if err != nil {
		return err
	}
	if stamp, _ := os.ReadFile(".bin/tested"); strings.TrimSpace(string(stamp)) != tree {
		return errors.New("make test was not green for this work tree: run it, or set SKIP_TESTS=1 for a rehearsal")
	}
	return nil
}

// prepare edits the files of the release. It returns the files that the work after the release needs otherwise, with
// their contents.
func (r release) prepare(modules []module) (map[string][]byte, error) {
	if err := r.editChangelog(); err != nil {
		return nil, err
	}
	all, err := workspace()
	if err != nil {
		return nil, err
	}
	restored := map[string][]byte{}
	for _, m := range all {
		var requires []string
		for _, required := range m.requires {
			requires = append(requires, "-require="+required+"@"+r.version)
		}
		if err := editModule(m, requires); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(m.folder, "cmd/") || !slices.ContainsFunc(modules, func(p module) bool { return p.path == m.path }) {
			continue
		}
		if restored[m.file()], err = os.ReadFile(m.file()); err != nil {
			return nil, err
		}
		if err := editModule(m, m.drops); err != nil {
			return nil, err
		}
	}
	return restored, nil
}

const unreleased = "## Unreleased\n"

func (r release) editChangelog() error {
	const file = "CHANGELOG.md"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if strings.Count(string(text), unreleased) != 1 {
		return fmt.Errorf("%s: want one section %q", file, strings.TrimSpace(unreleased))
	}
	section := fmt.Sprintf("%s\n## %s - %s\n", unreleased, strings.TrimPrefix(r.version, "v"), r.date.Format(time.DateOnly))
	return os.WriteFile(file, []byte(strings.Replace(string(text), unreleased, section, 1)), 0o600) // keeps the mode of the file
}

// git returns what a git command prints, without the last newline.
func git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// editModule changes the go.mod of a module by flags of go mod edit.
func editModule(m module, flags []string) error {
	if len(flags) == 0 {
		return nil
	}
	cmd := exec.Command("go", append(append([]string{"mod", "edit"}, flags...), m.file())...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go mod edit %s: %w", m.file(), err)
	}
	return nil
}
