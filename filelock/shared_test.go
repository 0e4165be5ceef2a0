//go:build unix

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/interlock-go/lock/backend"
)

// victimDir returns a directory with files of the names that the driver uses.
func victimDir(t *testing.T) (dir string, wantUntouched func()) {
	t.Helper()
	dir = t.TempDir()
	names := []string{fenceFile, ticketName(7), "other"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("precious "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func() {
		t.Helper()
		for _, name := range names {
			if content, err := os.ReadFile(filepath.Join(dir, name)); string(content) != "precious "+name {
				t.Errorf("the file %s of another directory is now %q, %v", name, content, err)
			}
		}
		if entries, _ := os.ReadDir(dir); len(entries) != len(names) {
			t.Errorf("another directory has new files: %v", entries)
		}
	}
}

// Another user who can write to the lock directory replaces the directory of a lock.
func TestLinkInPlaceOfLock(t *testing.T) {
	b := open1(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	g := try(t, b, "held")
	for _, name := range []string{"held", "k"} {
		victim, wantUntouched := victimDir(t)
		path := filepath.Join(b.root, name)
		if err := errors.Join(os.RemoveAll(path), os.Symlink(victim, path)); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"TryAcquire": second(b.TryAcquire(ctx, request(name))),
			"Acquire":    second(b.Acquire(ctx, request(name))),
			"Inspect":    second(b.Inspect(ctx, name)),
			"Break":      second(b.Break(ctx, name, "")),
		} {
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s with a link in the place of the lock: want an error with its path, got %v", what, err)
			}
		}
		wantUntouched()
	}
	wantErr(t, g.Release(ctx), backend.ErrLost)
}

// A link back to the lock directory itself is not another lock.
func TestLinkToAnotherLock(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "other"))
	if err := os.Symlink("other", filepath.Join(b.root, "k")); err != nil {
		t.Fatal(err)
	}
	if err := second(b.TryAcquire(t.Context(), request("k"))); err == nil {
		t.Error("a link to the directory of another lock was followed")
	}
}

func TestLinkInPlaceOfFile(t *testing.T) {
	b := open1(t, t.TempDir())
	for _, link := range []func(old, new string) error{os.Symlink, os.Link} {
		release(t, try(t, b, "k"))
		fence := filepath.Join(b.root, "k", fenceFile)
		victim := filepath.Join(t.TempDir(), "victim")
		if err := errors.Join(os.Remove(fence), os.WriteFile(victim, []byte("precious"), 0o600), link(victim, fence)); err != nil {
			t.Fatal(err)
		}
		if err := second(b.TryAcquire(t.Context(), request("k"))); err == nil || !strings.Contains(err.Error(), fence) {
			t.Errorf("got %v", err)
		}
		if content, _ := os.ReadFile(victim); string(content) != "precious" {
			t.Errorf("written through a link: %q", content)
		}
		if err := os.Remove(fence); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnsafeRoot(t *testing.T) {
	dir := t.TempDir()
	check := func(want string, opts ...Option) {
		t.Helper()
		b, err := New(dir, opts...)
		if err == nil {
			_ = b.Close(t.Context())
		}
		switch {
		case want == "" && err != nil:
			t.Error(err)
		case want != "" && (!errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir)):
			t.Errorf("got %v, want %q", err, want)
		}
	}
	group, everybody := WithMode(0o770|fs.ModeSetgid), WithMode(0o777)
	for mode, want := range map[fs.FileMode]string{0o700: "", 0o755: "", 0o707: "every user can write to it", 0o777 | fs.ModeSticky: "every user can write to it"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		check(want)
		check(want, group)
		check("", everybody)
	}
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	if err := errors.Join(os.Chmod(dir, 0o770), os.Chown(dir, 0, 4242)); err != nil {
		t.Fatal(err)
	}
	check("group 4242 can write to it")
	check("", group)
	if err := os.Chown(dir, 4243, 0); err != nil {
		t.Fatal(err)
	}
	check("it belongs to user 4243")
	check("", group)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Chown(dir, 0, 0), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	dir = link
	check("")
	if err := os.Lchown(link, 4243, 0); err != nil {
		t.Fatal(err)
	}
	check("belongs to user 4243")
	check("belongs to user 4243", group)
}

// TestModeIsComplete: other processes never see a directory or file without its mode.
func TestModeIsComplete(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	parent := t.TempDir()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, pattern := range []string{"r*", "r*/[a-z]*", "r*/[a-z]*/fence"} {
				paths, _ := filepath.Glob(filepath.Join(parent, pattern))
				for _, path := range paths {
					info, err := os.Stat(path)
					if err == nil && info.Mode().Perm()&0o060 != 0o060 {
						t.Errorf("%s was seen with mode %v", path, info.Mode())
					}
				}
			}
		}
	})
	for i := range 20 {
		b := open1(t, filepath.Join(parent, fmt.Sprint("r", i)), WithMode(0o770|fs.ModeSetgid))
		for k := range 10 {
			release(t, try(t, b, fmt.Sprint("k", k)))
		}
	}
	close(stop)
	watching.Wait()
}

// TestModeIsRepaired: a directory of this user with fewer permissions gets the others.
func TestModeIsRepaired(t *testing.T) {
	dir := t.TempDir()
	release(t, try(t, open1(t, dir), "k"))
	b := open1(t, dir, WithMode(0o770|fs.ModeSetgid))
	release(t, try(t, b, "k"))
	for name, want := range map[string]fs.FileMode{"k": 0o770 | fs.ModeSetgid | fs.ModeDir, "k/fence": 0o660} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// TestReleaseHappensBeforeGrant: the race detector reports an increment if two clients of
// one process have no order in the Go memory model.
func TestReleaseHappensBeforeGrant(t *testing.T) {
	dir := t.TempDir()
	count := 0
	var wg sync.WaitGroup
	for range 2 {
		b := open1(t, dir)
		wg.Go(func() {
			for range 50 {
				g, err := b.Acquire(t.Context(), request("k"))
				if err != nil {
					t.Error(err)
					return
				}
				count++
				release(t, g)
			}
		})
	}
	wg.Wait()
	if count != 100 {
		t.Errorf("counted %d, want 100", count)
	}
}
