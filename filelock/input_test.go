//go:build unix

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	b := open1(t, dir)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, second(b.TryAcquire(dead, request("k"))), context.Canceled)
	wantErr(t, second(b.Acquire(dead, request("k"))), context.Canceled)
	if _, err := os.Stat(filepath.Join(dir, "k")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dead context left something: %v", err)
	}
	for _, key := range []string{"", strings.Repeat("x", backend.MaxName+1)} {
		wantErr(t, second(b.TryAcquire(t.Context(), request(key))), backend.ErrInvalid)
		wantErr(t, second(b.Acquire(t.Context(), request(key))), backend.ErrInvalid)
		wantErr(t, second(b.Inspect(t.Context(), key)), backend.ErrInvalid)
		wantErr(t, second(b.Break(t.Context(), key, "")), backend.ErrInvalid)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantErr(t, second(New("")), backend.ErrInvalid)
	wantErr(t, second(New("a\x00b")), backend.ErrInvalid)
	wantErr(t, second(New(dir, WithPrefix(strings.Repeat("p", maxPrefix+1)))), backend.ErrInvalid)
	wantErr(t, second(New(dir, WithMode(0o070))), backend.ErrInvalid)
	wantErr(t, second(New(file)), backend.ErrInvalid)
	if _, err := New(filepath.Join(file, "sub")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a directory below a file: %v", err)
	}
	if _, err := New("/proc/interlock"); err == nil || !strings.Contains(err.Error(), "/proc/interlock") {
		t.Errorf("a directory that cannot be made: %v", err)
	}
}

func TestURL(t *testing.T) {
	open := func(s string) (*Backend, error) {
		u, err := backend.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		b, err := backend.Open(t.Context(), u)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = b.Close(context.Background()) })
		return b.(*Backend), nil
	}
	dir := t.TempDir()
	for _, bad := range []string{
		"file:", "file://host" + dir, "file://u:secret@localhost" + dir, "file://" + dir + "?mode=888", "file://" + dir + "?mode=4700",
		"file://" + dir + "?mode=0070", "file://" + dir + "?allow=nfs", "file://" + dir + "?prefx=a", "file://" + dir + "?prefix=" + strings.Repeat("p", 41),
		"file://" + dir + "?retention=59s", "file://" + dir + "?retention=-1h",
	} {
		if _, err := open(bad); !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for param, want := range map[string]time.Duration{"": 24 * time.Hour, "?retention=1m": time.Minute, "?retention=0": 0} {
		if b, err := open("file://" + dir + param); err != nil || b.retention != want {
			t.Errorf("%q: retention %v, %v, want %v", param, b.retention, err, want)
		}
	}
	t.Chdir(dir)
	b, err := open("file:rel/locks?prefix=shop&mode=2770&allow=fuse")
	if err != nil {
		t.Fatal(err)
	}
	here, _ := os.Getwd()
	if b.root != filepath.Join(here, "rel/locks") || b.prefix != "shop" || !b.allowFUSE {
		t.Errorf("opened %+v", b)
	}
	g := try(t, b, "k")
	for path, want := range map[string]fs.FileMode{
		b.root:                                  0o770 | fs.ModeDir | fs.ModeSetgid,
		filepath.Join(b.root, "shop@k"):         0o770 | fs.ModeDir | fs.ModeSetgid,
		filepath.Join(b.root, "shop@k/fence"):   0o660,
		ticketPath(g.(*ticket).path, g.Token()): 0o660,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	if b, err = open("file://localhost" + dir + "/abs"); err != nil || b.root != dir+"/abs" {
		t.Errorf("%v", err)
	}
	if info, err := os.Stat(b.root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
