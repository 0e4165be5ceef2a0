package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// compilerFlags are those of all packages of a run, and of what its tests build. Without debug information they are
// compiled in four fifths of the time.
const compilerFlags = "-gcflags=all=-dwarf=false"

// Files and folders of a run, relative to the root of the repository.
const (
	outputFile    = ".bin/tests.txt"
	serversFile   = ".bin/servers.txt"
	reportsFolder = ".bin/reports"
)

// prepare removes the results of the run before and sets where the tests write theirs and how they are compiled.
func prepare() error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(filepath.Dir(outputFile), 0o750),
		os.RemoveAll(outputFile), os.RemoveAll(serversFile), os.RemoveAll(reportsFolder),
		os.Setenv("LOCK_TEST_REPORT", filepath.Join(here, serversFile)),
		os.Setenv("LOCK_TEST_REPORTS", filepath.Join(here, reportsFolder)),
		os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" "+compilerFlags)),
	)
}

// atOnce is how many packages are tested at the same time. Most of the time the tests wait.
func atOnce(perProcessor float64) string {
	return fmt.Sprintf("-p=%d", int(math.Ceil(perProcessor*float64(runtime.NumCPU()))))
}

// goTest runs go test with the race detector, in random order, and reports its progress. Vetting the packages is left
// to make vet. Without debug information a program is linked in two thirds of the time.
func goTest(args ...string) error {
	full, err := os.OpenFile(outputFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer full.Close()
	cmd := exec.Command("go", append([]string{"test", "-json", "-race", "-vet=off", "-ldflags=-w", "-shuffle=on", "-count=1"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	r := newReport(os.Stdout, full, time.Now)
	err = errors.Join(read(out, r), cmd.Wait())
	r.finish()
	if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// read passes each event of go test to r.
func read(out io.Reader, r *report) error {
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil { // printed by go test itself
				e = event{Action: "build-output", Output: string(line)}
			}
			r.add(e)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// compile compiles the tests, so that no compiler runs beside a test that measures time. It returns nil if ctx ends.
func compile(ctx context.Context, packages []string) error {
	args := append([]string{"list", "-race", "-test", "-export", "-f", "{{.Export}}"}, packages...) // links nothing
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("go list: %w", err)
	}
	return nil
}

// printServers prints which servers were tested, each once.
func printServers() {
	content, err := os.ReadFile(serversFile)
	if err != nil {
		return // no test used one
	}
	seen := map[string]bool{}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for line := range strings.Lines(string(content)) {
		row := strings.Join(strings.Fields(line), " ")
		if seen[row] {
			continue
		}
		seen[row] = true
		fmt.Fprintln(w, strings.Replace(strings.Replace(row, " ", "\t", 1), " ", "\t", 1))
	}
	_ = w.Flush()
}
