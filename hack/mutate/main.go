// Command mutate takes each safety step away in turn, runs the tests that should
// notice, and writes which test guards which step to docs/safety-steps.md.
//
//	go run ./hack/mutate            # all: 40 minutes on two processors
//	go run ./hack/mutate redislock  # the steps whose file or name contains that; leaves the others' rows
//
// As many steps as there are processors are tried at the same time. Nothing in the tree is changed: the test is compiled
// with an overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Step is a safety step and how to take it away.
type Step struct {
	What string
	File string // from the root
	Old  string // occurs exactly once there
	New  string
	Dir  string // where go test runs: a folder of the module that has the tests
	Run  string // go test -run, the candidates
}

const document = "docs/safety-steps.md"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// result is what the tests said about a step.
type result struct {
	step   Step
	guards []string
	err    error
	took   time.Duration
}

func run(only []string) error {
	chosen := slices.DeleteFunc(slices.Clone(steps), func(s Step) bool {
		return len(only) > 0 && !slices.ContainsFunc(only, func(o string) bool { return strings.Contains(s.File+" "+s.What, o) })
	})
	todo, results := make(chan Step, len(chosen)), make(chan result)
	for _, s := range chosen {
		todo <- s
	}
	close(todo)
	for range runtime.NumCPU() {
		go func() {
			for s := range todo {
				start := time.Now()
				guards, err := s.guards()
				results <- result{s, guards, err, time.Since(start)}
			}
		}()
	}
	unguarded, broken := 0, 0
	for range chosen {
		r := <-results
		if r.err != nil {
			fmt.Printf("%s: %s: %v\n", r.step.File, r.step.What, r.err)
			broken++
			continue
		}
		said := strings.Join(r.guards, ", ")
		if len(r.guards) == 0 {
			unguarded++
			said = "**none**"
		}
		fmt.Printf("%-7v %s: %s: %s\n", r.took.Round(100*time.Millisecond), r.step.File, r.step.What, said)
		if err := r.step.write(said); err != nil {
			return err
		}
	}
	if unguarded+broken > 0 {
		return fmt.Errorf("%d steps are guarded by no test, %d could not be tried", unguarded, broken)
	}
	return nil
}

const heading = `# Which test guards which safety step

Each step was taken away once, and the tests named here failed. Written by ` + "`make mutate`" + `; the steps are in
` + "`hack/mutate/steps*.go`" + `, and a test sees to it that each is still in the code.

| file | step | tests that fail without it |
|---|---|---|
`

// row is how the step's line of the document begins.
func (s Step) row() string { return fmt.Sprintf("| `%s` | %s |", s.File, s.What) }

// write puts the step's line into the document, and leaves the others as they are.
func (s Step) write(said string) error {
	before, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	text := heading
	for _, o := range steps {
		if o.row() == s.row() {
			text += s.row() + " " + said + " |\n"
			continue
		}
		for line := range strings.Lines(string(before)) {
			if strings.HasPrefix(line, o.row()) {
				text += line
			}
		}
	}
	return os.WriteFile(document, []byte(text), 0o600)
}

// mutated is the file without the step.
func (s Step) mutated(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, s.File))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(content, []byte(s.Old)); n != 1 {
		return nil, fmt.Errorf("%s: the text of the step occurs %d times, want 1:\n%s", s.File, n, s.Old)
	}
	return bytes.Replace(content, []byte(s.Old), []byte(s.New), 1), nil
}

// tested runs tests of the step, as they are or with an overlay, and returns what go test says.
func (s Step) tested(root, run string, more ...string) ([]byte, error) {
	limit := "40s"
	if strings.HasPrefix(s.Dir, "integration") || run == rule {
		limit = "2m" // a server starts first, or a sequence of operations is shortened
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	args := append([]string{"test", "-count=1", "-timeout=" + limit, "-vet=off", "-run=" + run}, more...)
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, s.Dir)
	cmd.Env = append(os.Environ(), "LOCK_TEST_REQUIRE=all", "LOCK_TEST_ALL=1") // a skipped test guards nothing
	return cmd.CombinedOutput()
}

var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// failures are the tests that failed: of a pattern that names subtests those, else
// the tests as a whole.
func (s Step) failures(out []byte) []string {
	var all, names []string
	for _, m := range failed.FindAllSubmatch(out, -1) {
		all = append(all, string(m[1]))
	}
	for _, name := range all {
		below := slices.ContainsFunc(all, func(o string) bool { return strings.HasPrefix(o, name+"/") })
		switch {
		case !strings.Contains(s.Run, "/"):
			name, _, _ = strings.Cut(name, "/")
		case below:
			continue
		}
		if name = "`" + name + "`"; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var passed sync.Map // of func() error, by folder and tests

// passes: the tests pass with the step in place. Else they would show nothing.
func (s Step) passes(root, run string) error {
	once, _ := passed.LoadOrStore(s.Dir+" "+run, sync.OnceValue(func() error {
		if out, err := s.tested(root, run); err != nil {
			return fmt.Errorf("%s: fails with the step in place: %w\n%s", run, err, out)
		}
		return nil
	}))
	return once.(func() error)()
}

// guards are the tests that fail without the step.
func (s Step) guards() ([]string, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	content, err := s.mutated(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, overlay := filepath.Join(dir, filepath.Base(s.File)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, s.File): file}})
	if err == nil {
		err = errors.Join(os.WriteFile(file, content, 0o600), os.WriteFile(overlay, list, 0o600))
	}
	if err != nil {
		return nil, err
	}
	out, err := s.tested(root, s.Run, "-overlay="+overlay)
	switch {
	case err == nil && bytes.Contains(out, []byte("no tests to run")):
		return nil, fmt.Errorf("no test is called %s", s.Run)
	case err == nil:
		return nil, nil
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return nil, fmt.Errorf("does not compile without it:\n%s", out)
	}
	guards := s.failures(out)
	if len(guards) == 0 { // it hung, or crashed
		guards = []string{"`" + strings.ReplaceAll(s.Run, "|", "` or `") + "`, which does not end"}
	}
	return guards, s.passes(root, s.Run)
}
