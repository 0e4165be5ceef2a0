//go:build unix

// Package file_test runs the conformance suite against file locks, with processes
// that are killed, stopped, and whose clock is wrong.
package file_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/filelock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain()
	provision.Main(m)
}

func TestConformanceFile(t *testing.T) {
	dir := t.TempDir()
	self := conformance.Self((&url.URL{Scheme: "file", Path: dir}).String())
	main, err := filelock.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = main.Close(context.Background()) })
	path := func(name string) string {
		p, err := main.Path(name)
		if err != nil {
			t.Errorf("Path(%q): %v", name, err)
		}
		return p
	}
	conformance.Run(t, conformance.Harness{
		Name:   "file",
		Budget: conformance.Budget{WakesPerRelease: 1, DeadProcess: backend.MaxProvisionalTTL},
		Open:   func(context.Context) (backend.Backend, error) { return filelock.New(dir) },
		OpenPrefix: func(_ context.Context, prefix string) (backend.Backend, error) {
			return filelock.New(dir, filelock.WithPrefix(prefix))
		},
		Worker:      self,
		ClockWorker: provision.ClockWorker(t, self),
		KeyOf:       path,
		Leftovers: func(_ context.Context, name string) ([]string, error) {
			entries, err := os.ReadDir(path(name))
			if os.IsNotExist(err) {
				return nil, nil
			}
			var left []string
			for _, e := range entries {
				if e.Name() != "fence" { // the counter, which is meant to stay
					left = append(left, e.Name())
				}
			}
			return left, err
		},
		DestroyState: func(_ context.Context, name string) error {
			tickets, err := filepath.Glob(filepath.Join(escapeGlob(path(name)), "[0-9]*"))
			if err != nil || len(tickets) == 0 {
				return err
			}
			return os.Remove(tickets[0]) // in order: the holder's
		},
		KeepsFence: true,
	}, suite.Keep(t))
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}

func TestConformanceCrowd(t *testing.T) {
	provision.LeaveOut(t, "ten thousand readers")
	dir := t.TempDir()
	conformance.Run(t, conformance.Harness{
		Name: "file",
		Open: func(context.Context) (backend.Backend, error) { return filelock.New(dir) },
	}, suite.Crowd()...)
}
