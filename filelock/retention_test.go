//go:build unix

package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// setCounter writes the counter of a lock, which was last used some time ago.
func setCounter(t *testing.T, b *Backend, key string, last uint64, ago time.Duration) {
	t.Helper()
	path := filepath.Join(b.root, key, fenceFile)
	then := time.Now().Add(-ago)
	if err := errors.Join(os.WriteFile(path, fmt.Appendf(nil, counterForm, numberLen, last), 0o600), os.Chtimes(path, then, then)); err != nil {
		t.Fatal(err)
	}
}

func exists(b *Backend, name string) bool {
	_, err := os.Lstat(filepath.Join(b.root, name))
	return err == nil
}

// A sweep removes what was not used for a time, and tokens rise over it, also if the clock
// was set back.
func TestSweep(t *testing.T) {
	b := open1(t, t.TempDir())
	ahead := uint64(time.Now().Add(1000 * time.Hour).UnixMicro())
	for i, key := range []string{"unused", "older", "recent"} {
		release(t, try(t, b, key))
		setCounter(t, b, key, ahead+uint64(i), []time.Duration{2 * time.Hour, 3 * time.Hour, time.Minute}[i])
	}
	holds := try(t, b, "held")
	setCounter(t, b, "held", holds.Token(), 2*time.Hour)
	waited := queue(t, t.Context(), b, "held")
	setCounter(t, b, "held", ahead, 2*time.Hour)
	dead := try(t, b, "dead").(*ticket)
	dead.file.Close() // as if its process had ended
	setCounter(t, b, "dead", dead.number, 2*time.Hour)
	incomplete := filepath.Join(b.root, newPrefix+"x")
	then := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(os.Mkdir(incomplete, 0o700), os.Chtimes(incomplete, then, then)); err != nil {
		t.Fatal(err)
	}

	if err := b.sweep(time.Hour); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"unused": false, "older": false, "recent": true, "held": true, "dead": false, newPrefix + "x": false, floorFile: true,
	} {
		if got := exists(b, name); got != want {
			t.Errorf("%s is left: %v, want %v", name, got, want)
		}
	}
	if entries, err := os.ReadDir(b.root); err != nil || len(entries) != 3 {
		t.Errorf("%v is left in the root, %v", entries, err)
	}
	for _, key := range []string{"unused", "never used before"} {
		g := try(t, b, key)
		if g.Token() <= ahead+1 {
			t.Errorf("%s: token %d, want more than %d", key, g.Token(), ahead+1)
		}
		release(t, g)
	}
	release(t, holds)
	release(t, served(t, waited))
}

// While a sweep is under way in one process, another one removes nothing.
func TestSweepAlone(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "k"))
	setCounter(t, b, "k", 7, time.Hour)
	root, err := os.Open(b.root)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := tryFlock(root, exclusive); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := b.sweep(time.Minute); err != nil || !exists(b, "k") {
		t.Errorf("removed beside another sweep, %v", err)
	}
	root.Close()
	if err := b.sweep(time.Minute); err != nil || exists(b, "k") {
		t.Errorf("not removed, %v", err)
	}
}

// Attempts race with sweeps that take every name for unused: one holder at a time, and
// tokens rise.
func TestSweepBesideAttempts(t *testing.T) {
	dir := t.TempDir()
	var (
		done    atomic.Bool
		inside  atomic.Int32
		last    atomic.Uint64
		all     sync.WaitGroup
		workers sync.WaitGroup
	)
	sweeper := open1(t, dir)
	all.Go(func() {
		for !done.Load() {
			if err := sweeper.sweep(0); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		b := open1(t, dir)
		workers.Go(func() {
			for range 50 {
				g, err := b.Acquire(t.Context(), request("k"))
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				if before := last.Swap(g.Token()); g.Token() <= before {
					t.Errorf("token %d after %d", g.Token(), before)
				}
				inside.Add(-1)
				if err := g.Release(t.Context()); err != nil && !errors.Is(err, backend.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	done.Store(true)
	all.Wait()
	if err := sweeper.sweep(0); err != nil || exists(sweeper, "k") {
		t.Errorf("not removed in the end, %v", err)
	}
}

// An open Backend sweeps by itself.
func TestRetention(t *testing.T) {
	b := open1(t, t.TempDir(), WithRetention(0))
	release(t, try(t, b, "k"))
	setCounter(t, b, "k", 7, time.Hour)
	b.retention = 40 * time.Millisecond // shorter than New accepts
	ended := make(chan struct{})
	go func() { b.removeUnused(); close(ended) }()
	eventually(t, "the removal of an unused name", func() bool { return !exists(b, "k") })
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
}
