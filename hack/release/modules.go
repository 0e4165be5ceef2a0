package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const root = "github.com/interlock-go/lock"

// unpublished are the folders of modules that serve the work on this repository only. They get no tag.
var unpublished = []string{"bench", "examples", "hack", "integration"}

// module is a module of go.work.
type module struct {
	path     string
	folder   string   // slash-separated, relative to the root; "." is the root module
	requires []string // modules of this repository
	drops    []string // flags of go mod edit that remove its replace and exclude lines
}

func (m module) file() string { return filepath.Join(m.folder, "go.mod") }

// tag is the name by which the go command finds a version of the module.
func (m module) tag(version string) string {
	if m.folder == "." {
		return version
	}
	return m.folder + "/" + version
}

// published returns the modules that get a tag, each after those that it requires.
func published() ([]module, error) {
	all, err := workspace()
	if err != nil {
		return nil, err
	}
	var ordered []module
	for len(ordered) < len(all) {
		before := len(ordered)
		for _, m := range all {
			has := func(path string) bool {
				return slices.ContainsFunc(ordered, func(o module) bool { return o.path == path })
			}
			if !has(m.path) && !slices.ContainsFunc(m.requires, func(p string) bool { return !has(p) }) {
				ordered = append(ordered, m)
			}
		}
		if len(ordered) == before {
			return nil, fmt.Errorf("modules require each other, or one that is not in go.work: %v", all)
		}
	}
	return slices.DeleteFunc(ordered, func(m module) bool {
		first, _, _ := strings.Cut(m.folder, "/")
		return slices.Contains(unpublished, first)
	}), nil
}

// workspace returns the modules of go.work.
func workspace() ([]module, error) {
	var work struct {
		Use []struct{ DiskPath string }
	}
	if err := readJSON(&work, "work", "edit", "-json"); err != nil {
		return nil, err
	}
	var modules []module
	for _, use := range work.Use {
		var file struct {
			Module  struct{ Path string }
			Require []struct{ Path string }
			Replace []struct{ Old struct{ Path string } }
			Exclude []struct{ Path, Version string }
		}
		m := module{folder: filepath.ToSlash(filepath.Clean(use.DiskPath))}
		if err := readJSON(&file, "mod", "edit", "-json", m.file()); err != nil {
			return nil, err
		}
		m.path = file.Module.Path
		for _, r := range file.Require {
			if r.Path == root || strings.HasPrefix(r.Path, root+"/") {
				m.requires = append(m.requires, r.Path)
			}
		}
		for _, r := range file.Replace {
			m.drops = append(m.drops, "-dropreplace="+r.Old.Path)
		}
		for _, e := range file.Exclude {
			m.drops = append(m.drops, "-dropexclude="+e.Path+"@"+e.Version)
		}
		modules = append(modules, m)
	}
	return modules, nil
}

func readJSON(v any, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return json.Unmarshal(out, v)
}
