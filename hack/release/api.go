package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// reportAPI prints how the API of the work tree differs from the last release. It returns an error if no next version
// may have these changes.
func reportAPI() error {
	last, broken, err := brokenAPI()
	switch {
	case err != nil:
		return err
	case last == "":
		fmt.Println("nothing is released yet: there is no API to compare with")
	case broken == "":
		fmt.Printf("the API is compatible with %s\n", last)
	case strings.HasPrefix(last, "v0."):
		fmt.Printf("%sincompatible with %s: the next version is not a patch of it\n", broken, last)
	default:
		return fmt.Errorf("incompatible with %s:\n%s", last, broken)
	}
	return nil
}

// checkAPI returns an error if version must not have the API of the work tree: a patch, and each version from v1.0.0 on,
// keeps the API of the release before it.
func checkAPI(version string) error {
	last, broken, err := brokenAPI()
	if err != nil || broken == "" {
		return err
	}
	if minor := last[:strings.LastIndex(last, ".")+1]; strings.HasPrefix(last, "v0.") && !strings.HasPrefix(version, minor) {
		return nil
	}
	return fmt.Errorf("%s must be compatible with %s, and is not:\n%s", version, last, broken)
}

// brokenAPI returns the last version that is released, and the incompatible changes of the published modules since then.
func brokenAPI() (last, broken string, err error) {
	tags, err := git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname")
	if last, _, _ = strings.Cut(tags, "\n"); err != nil || last == "" {
		return "", "", err
	}
	modules, err := published()
	if err != nil {
		return "", "", err
	}
	temporary, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(temporary)
	released := filepath.Join(temporary, "tree")
	if _, err := git("worktree", "add", "--quiet", "--detach", released, last); err != nil {
		return "", "", err
	}
	defer func() {
		_, failed := git("worktree", "remove", "--force", released)
		err = errors.Join(err, failed)
	}()
	for _, m := range modules {
		tagged, err := git("tag", "--list", m.tag(last))
		if err != nil {
			return "", "", err
		}
		if tagged == "" || strings.HasPrefix(m.folder, "cmd/") { // new, or without an API
			continue
		}
		changes, err := m.broken(filepath.Join(released, m.folder), filepath.Join(temporary, "api"))
		if err != nil {
			return "", "", err
		}
		if changes != "" {
			broken += m.path + "\n" + changes + "\n"
		}
	}
	return last, broken, nil
}

// broken returns the incompatible changes of a module since that in the folder old. It writes files whose names begin
// with file.
func (m module) broken(old, file string) (string, error) {
	for suffix, folder := range map[string]string{".old": old, ".new": m.folder} {
		if _, err := apidiff(folder, "-m", "-w", file+suffix, m.path); err != nil {
			return "", err
		}
	}
	return apidiff(".", "-m", "-incompatible", file+".old", file+".new")
}

// apidiff runs golang.org/x/exp/cmd/apidiff, which make builds.
func apidiff(folder string, args ...string) (string, error) {
	program := os.Getenv("APIDIFF")
	if program == "" {
		return "", errors.New("the variable APIDIFF does not name the program: run make api or make release")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = folder, append(os.Environ(), "GOWORK=off"), os.Stderr // a module without those below its folder
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("apidiff %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
