package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// check is tier 1.
func check() error {
	base, err := baseCommit("@{upstream}", "HEAD")
	if err != nil {
		return err
	}
	files, err := changedFiles(base)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		say("nothing differs from %s", base)
		return nil
	}
	packages, err := list()
	if err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	var folders, paths []string
	for _, p := range touchedBy(packages, files) {
		if !within(p.folder, []string{"integration", "bench"}) {
			folders, paths = append(folders, "./"+p.folder), append(paths, p.path)
		}
	}
	errs := []error{formatted(files)}
	if len(paths) > 0 {
		say("go vet and unit tests of %d packages", len(paths))
		errs = append(errs, command("go", append([]string{"vet"}, folders...)...), goTest(append([]string{atOnce(1)}, paths...)...))
	}
	for _, p := range []string{"./hack/docs", "./hack/pictures", "./hack/site"} { // they read the documents
		if !slices.Contains(folders, p) {
			say("tests of %s", p)
			errs = append(errs, goTest(p))
		}
	}
	if modules := modulesOf(files); len(modules) > 0 {
		errs = append(errs, command("make", "--no-print-directory", "lint", "MODULES="+strings.Join(modules, " ")))
	}
	return errors.Join(errs...)
}

func formatted(files []string) error {
	var sources []string
	for _, f := range files {
		if _, err := os.Stat(f); err == nil && strings.HasSuffix(f, ".go") {
			sources = append(sources, f)
		}
	}
	if len(sources) == 0 {
		return nil
	}
	bad, err := output("gofmt", append([]string{"-l"}, sources...)...)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("not formatted, run gofmt -w: %s", strings.Join(bad, " "))
	}
	return err
}

// modulesOf returns the folders of the modules that the files are in.
func modulesOf(files []string) []string {
	var found []string
	for _, f := range files {
		dir := filepath.Dir(f)
		for dir != "." {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				break
			}
			dir = filepath.Dir(dir)
		}
		if abs, err := filepath.Abs(dir); err == nil && !slices.Contains(found, abs) && filepath.Ext(f) == ".go" {
			found = append(found, abs)
		}
	}
	return found
}

// current is tier 2.
func current() error {
	if err := prepare(); err != nil {
		return err
	}
	packages, err := list()
	if err != nil {
		return err
	}
	paths := tested(packages, backends)
	say("compiling %d packages, then a simulation, while the servers are set up", len(paths))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	compiled := make(chan error, 1)
	go func() {
		err := compile(ctx, append(slices.Clone(paths), faultsPackages))
		if err == nil && ctx.Err() == nil {
			err = simulate()
		}
		compiled <- err
	}()
	if err = command("hack/setup.sh", "test"); err != nil {
		cancel()
	}
	if err := errors.Join(err, <-compiled); err != nil {
		return err
	}
	say("tests of every backend in its current version")
	err = inTurns(append([]string{"-timeout=25m", atOnce(3)}, paths...)...) // some of them wait for their turn
	say("40 s of faults on every backend")
	err = errors.Join(err, goTest("-timeout=10m", faultsPackages))
	printServers()
	return errors.Join(err, stamp(err == nil))
}

// simulate runs the simulation of Redlock, which is not compiled with -race. It only computes: an earlier result of the
// same code counts.
func simulate() error {
	return command("go", "test", "-timeout=10m", "-run=Simulation", "github.com/interlock-go/lock/redislock/redlock")
}

// stamp leaves the tree that passed in .bin/tested, for make release, or removes that file.
func stamp(passed bool) error {
	const file = ".bin/tested"
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	changes, err := output("git", "status", "--porcelain")
	if err != nil || !passed || len(changes) > 0 {
		return nil // not a tree that can be released; a source archive has no git
	}
	tree, err := output("git", "rev-parse", "HEAD^{tree}")
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.Join(tree, "")+"\n"), 0o600)
}

// all is tier 3, of the named backends or, without names, of everything.
func all(names []string) error {
	chosen, err := backendsOf(names)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Setenv("LOCK_TEST_ALL", "1"), prepare(), command("hack/setup.sh", "all")); err != nil {
		return err
	}
	packages, err := list()
	if err != nil {
		return err
	}
	paths := tested(packages, chosen)
	say("compiling %d packages", len(paths))
	if err := compile(context.Background(), append(slices.Clone(paths), faultsPackages)); err != nil {
		return err
	}
	say("tests of all versions and topologies")
	err = goTest(append([]string{"-timeout=40m", atOnce(1)}, paths...)...)
	if slices.ContainsFunc(chosen, func(b backend) bool { return b.owns("redislock/redlock") }) {
		err = errors.Join(err, simulate())
	}
	say("faults")
	for _, args := range faultRuns(chosen) {
		err = errors.Join(err, goTest(append(args, "-timeout=30m", faultsPackages)...))
	}
	say("every benchmark once")
	err = errors.Join(err, goTest(append([]string{"-short", "-run=^$", "-bench=.", "-benchtime=1x", "-p=1", "-timeout=20m"}, paths...)...))
	printServers()
	return err
}

// faultRuns returns the arguments of go test for the faults of the backends: those that are about no service run
// first and alone, since they look for rare events.
func faultRuns(chosen []backend) (runs [][]string) {
	var services []string
	for _, b := range chosen {
		if b.services == "" {
			runs = append(runs, []string{"-skip=^TestFaults$"})
		} else {
			services = append(services, b.services)
		}
	}
	if len(services) > 0 {
		runs = append(runs, []string{"-run=^TestFaults$/^(" + strings.Join(services, "|") + ")$"})
	}
	return runs
}

func backendsOf(names []string) ([]backend, error) {
	if len(names) == 0 {
		return backends, nil
	}
	var found []backend
	for _, name := range names {
		i := slices.IndexFunc(backends, func(b backend) bool { return b.name == name })
		if i < 0 {
			var known []string
			for _, b := range backends {
				known = append(known, b.name)
			}
			return nil, fmt.Errorf("backend %q: want %s", name, strings.Join(known, ", "))
		}
		found = append(found, backends[i])
	}
	return found, nil
}

// touched runs tier 3 of the backends that the change touches, as far as it fits into the time.
func touched(minutes int) error {
	base, err := baseCommit(lastTag())
	if err != nil {
		return err
	}
	if base == "" {
		say("not run here, since neither BASE nor a release tag says what the change is: make test-all")
		return nil
	}
	files, err := changedFiles(base)
	if err != nil {
		return err
	}
	chosen, left := fitting(files, minutes)
	if len(left) > 0 {
		say("not run here, since %d minutes are too short: make test-all ONLY=%q", minutes, strings.Join(left, " "))
	}
	if len(chosen) == 0 {
		say("no other backend differs from %s", base)
		return nil
	}
	say("backends that differ from %s: %s", base, strings.Join(chosen, " "))
	return all(chosen)
}

// fitting divides the backends that the files are about into those whose tests fit into the time and the others.
func fitting(files []string, minutes int) (chosen, left []string) {
	for _, b := range backends {
		switch {
		case !slices.ContainsFunc(files, b.owns):
		case b.minutes <= minutes:
			chosen = append(chosen, b.name)
			minutes -= b.minutes
		default:
			left = append(left, b.name)
		}
	}
	return chosen, left
}

// baseCommit is the commit of the variable BASE; else that of the first name that git knows.
func baseCommit(names ...string) (string, error) {
	if named := os.Getenv("BASE"); named != "" {
		id, err := output("git", "rev-parse", "--verify", named+"^{commit}")
		if err != nil {
			return "", fmt.Errorf("BASE=%q: want a commit of this repository: %w", named, err)
		}
		return id[0], nil
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if id, err := output("git", "merge-base", "HEAD", name); err == nil {
			return id[0], nil
		}
	}
	return "", nil
}

func lastTag() string {
	tag, err := output("git", "describe", "--tags", "--abbrev=0")
	if err != nil || len(tag) == 0 {
		return ""
	}
	return tag[0]
}

func changedFiles(base string) ([]string, error) {
	changed, err := output("git", "diff", "--name-only", base)
	if err != nil {
		return nil, err
	}
	added, err := output("git", "ls-files", "--others", "--exclude-standard")
	return append(changed, added...), err
}
