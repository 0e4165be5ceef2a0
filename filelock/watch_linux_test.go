package filelock

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func (b *Backend) watches() int {
	b.mu.Lock()
	w := b.events
	b.mu.Unlock()
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

// withoutEvents makes the inotify instance refuse watches, as the system does at its limits.
func withoutEvents(t *testing.T, b *Backend) {
	t.Helper()
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	w.close()
	b.events = w
}

func TestWatchesOfOneFile(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	dir := openDirectory(t)
	path := ticketPath(dir.Name(), 1)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	events := make(chan int, 9)
	var cancels []func()
	for i := range 3 {
		cancel, err := w.add(path, func() { events <- i })
		if err != nil {
			t.Fatal(err)
		}
		cancels = append(cancels, cancel)
	}
	if ok, err := dir.alive(1); ok || err != nil { // a probe is no event
		t.Fatal(ok, err)
	}
	cancels[1]()
	cancels[1]()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for seen := map[int]bool{}; !seen[0] || !seen[2]; {
		select {
		case i := <-events:
			if i == 1 {
				t.Fatal("an event after cancel")
			}
			seen[i] = true
		case <-time.After(timeout):
			t.Fatal("no event")
		}
	}
	cancels[0]()
	eventually(t, "the map is empty", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.watches) == 0 })
	cancels[2]()
	if _, err := w.add(path, func() {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a watch of nothing: %v", err)
	}
}

func TestProbeIsNoEvent(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	dir := openDirectory(t)
	path := ticketPath(dir.Name(), 1)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan struct{}, 9)
	if _, err := w.add(path, func() { events <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := dir.alive(1); err != nil {
			t.Fatal(err)
		}
	}
	f.Close() // the first event: had the probes made any, they would come before it
	<-events
	if n := len(events); n != 0 {
		t.Errorf("%d events too many", n)
	}
}

func TestRemoteFileSystems(t *testing.T) {
	for kind, want := range map[uint32]string{0x6969: "NFS", 0xff534d42: "CIFS", fuse: "allow=fuse"} {
		err := refuse("/mnt/x", kind, false)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "/mnt/x") || !strings.Contains(err.Error(), want) {
			t.Errorf("%#x: %v", kind, err)
		}
	}
	if err := refuse("/mnt/x", fuse, true); err != nil {
		t.Error(err)
	}
	if err := refuse("/", 0xef53, false); err != nil {
		t.Error(err)
	}
}
