package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// backend is what tests one driver.
type backend struct {
	name     string
	folders  []string // of its packages; nil: all others
	services string   // in integration/faults, a regular expression; empty: the tests that are about no service
	minutes  int      // of tier all on two processors, rounded up
}

var backends = []backend{
	{"file", []string{"filelock", "integration/file"}, "file", 3},
	{"redis", []string{"redislock", "integration/redis", "integration/redistest"}, "redis.*", 9},
	{"redlock", []string{"redislock", "integration/redlock", "integration/redistest"}, "redlock.*", 7},
	{"etcd", []string{"etcdlock", "integration/etcd"}, "etcd.*", 13},
	{"zookeeper", []string{"zklock", "integration/zookeeper"}, "zookeeper.*", 9},
	{"postgres", []string{"pglock", "integration/postgres"}, "postgres", 14},
	{"mysql", []string{"mysqllock", "integration/mysql"}, "mariadb", 16},
	{"memcached", []string{"memcachelock", "integration/memcached"}, "memcached", 3},
	{"nats", []string{"natslock", "integration/nats"}, "nats.*", 3},
	{"s3", []string{"s3lock", "integration/s3"}, "s3.*", 5},
	{"core", nil, "", 30},
}

// owns reports whether the tests of the backend are about a file or folder. Those of core are about all that is no
// other backend's.
func (b backend) owns(name string) bool {
	if b.folders != nil {
		return within(name, b.folders)
	}
	return !slices.ContainsFunc(backends, func(o backend) bool { return within(name, o.folders) })
}

const faultsPackages = "./integration/faults/..."

// goPackage is a package of this repository.
type goPackage struct {
	path    string
	folder  string // relative to the root of the repository
	tests   bool
	imports []string // with those of its tests
	deps    []string // of the package without its tests
}

// list returns all packages of the workspace.
func list() ([]goPackage, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	modules, err := output("go", "list", "-m", "-f", "{{.Dir}}/...")
	if err != nil {
		return nil, err
	}
	const format = `{{.ImportPath}}|{{.Dir}}|{{or .TestGoFiles .XTestGoFiles}}|{{join .TestImports " "}} {{join .XTestImports " "}}|{{join .Deps " "}}`
	lines, err := output("go", append([]string{"list", "-f", format}, modules...)...)
	if err != nil {
		return nil, err
	}
	var found []goPackage
	for _, line := range lines {
		f := strings.Split(line, "|")
		if len(f) != 5 {
			return nil, fmt.Errorf("go list: unexpected line %q", line)
		}
		folder, err := filepath.Rel(here, f[1])
		if err != nil {
			return nil, err
		}
		found = append(found, goPackage{
			path: f[0], folder: filepath.ToSlash(folder), tests: f[2] != "[]",
			imports: strings.Fields(f[3]), deps: strings.Fields(f[4]),
		})
	}
	return found, nil
}

// output returns the lines that a program prints.
func output(name string, args ...string) ([]string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("%s %s: %w", name, firstOf(args), err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(l string) bool { return l == "" }), nil
}

// within reports whether a file or folder is in one of the folders.
func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return name == f || strings.HasPrefix(name, f+"/") })
}

// slow are the folders of packages whose tests take more than ten seconds, about the longest first. They begin first, so
// that none of them is left for the end, and in turns.
var slow = []string{
	"integration/postgres", "integration/mysql", "integration/zookeeper", "integration/redlock", "integration/etcd",
	"integration/s3", "conformance", "integration/release", "integration/nats", "integration/redis", "integration/memcached",
	"cmd/lockctl", "redislock", "examples/toydriver/queued", "examples/toydriver/plain", "integration/file", ".",
	"integration/counter", "integration/lazy", "integration/security", "etcdlock", "bench", "redislock/redlock", "cmd/lockbench",
}

// tested returns the packages with tests of the backends, but integration/faults, which runs by itself.
func tested(packages []goPackage, of []backend) []string {
	found := slices.DeleteFunc(slices.Clone(packages), func(p goPackage) bool {
		return !p.tests || within(p.folder, []string{"integration/faults"}) ||
			!slices.ContainsFunc(of, func(b backend) bool { return b.owns(p.folder) })
	})
	rank := func(p goPackage) int {
		if i := slices.Index(slow, p.folder); i >= 0 {
			return i
		}
		return len(slow)
	}
	slices.SortStableFunc(found, func(a, b goPackage) int { return cmp.Compare(rank(a), rank(b)) })
	paths := make([]string, len(found))
	for i, p := range found {
		paths[i] = p.path
	}
	return paths
}

// touchedBy returns the packages with tests whose outcome a change of those files can alter.
func touchedBy(packages []goPackage, files []string) []goPackage {
	byPath := map[string]goPackage{}
	changed := map[string]bool{}
	for _, p := range packages {
		byPath[p.path] = p
	}
	for _, file := range files {
		// The package of a file is the nearest above it: it may be embedded or test data.
		for dir := filepath.ToSlash(filepath.Dir(file)); ; dir = filepath.ToSlash(filepath.Dir(dir)) {
			i := slices.IndexFunc(packages, func(p goPackage) bool { return p.folder == dir })
			if i >= 0 {
				// Documents and settings at the root belong to no package.
				if dir != "." || strings.HasSuffix(file, ".go") && !strings.Contains(file, "/") {
					changed[packages[i].path] = true
				}
				break
			}
			if dir == "." {
				break
			}
		}
	}
	uses := func(p goPackage) bool {
		return changed[p.path] || slices.ContainsFunc(p.deps, func(d string) bool { return changed[d] })
	}
	return slices.DeleteFunc(slices.Clone(packages), func(p goPackage) bool {
		return !p.tests || !uses(p) && !slices.ContainsFunc(p.imports, func(i string) bool { return uses(byPath[i]) })
	})
}
