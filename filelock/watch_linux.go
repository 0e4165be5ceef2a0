package filelock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
)

const canWatch = true

// A ticket ends when its name is removed (the link count is an attribute) or moved, or when its only writer closes
// it. The kernel closes the files of a dead process. The watch of a directory also reports that of each file in it.
const watchMask = syscall.IN_CLOSE_WRITE | syscall.IN_ATTRIB | syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF |
	syscall.IN_DELETE | syscall.IN_MOVED_FROM | syscall.IN_DONT_FOLLOW

// watcher is an inotify instance. The kernel has one watch for each file and instance, which all watches of the file
// share.
type watcher struct {
	file *os.File // non-blocking, so that close ends a read
	done chan struct{}

	mu      sync.Mutex // also held from the making of a watch until it is in the map
	watches map[int32]map[*watch]struct{}
}

type watch struct{ notify func() }

// watch calls notify, from one goroutine, after each event of the file that may mean the end of its ticket, until
// cancel is called. It returns false if there are no events: then the caller polls. The first watch opens the inotify
// instance; after a failure, for example at a limit, the next one tries again. Close closes it when no operation is
// under way.
func (b *Backend) watch(path string, notify func()) (cancel func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events == nil {
		w, err := newWatcher()
		if err != nil {
			return nil, false
		}
		b.events = w
	}
	cancel, err := b.events.add(path, notify)
	return cancel, err == nil
}

func newWatcher() (*watcher, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &watcher{
		file:    os.NewFile(uintptr(fd), "inotify"),
		done:    make(chan struct{}),
		watches: map[int32]map[*watch]struct{}{},
	}
	go w.run()
	return w, nil
}

// add begins a watch. It returns an error if the watcher was closed: its file is closed then.
func (w *watcher) add(path string, notify func()) (cancel func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wd int
	closed := w.control(func(fd int) {
		wd, err = syscall.InotifyAddWatch(fd, path, watchMask)
		for errors.Is(err, syscall.EINTR) {
			wd, err = syscall.InotifyAddWatch(fd, path, watchMask)
		}
	})
	if err = errors.Join(closed, err); err != nil {
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	id := int32(wd)
	if w.watches[id] == nil {
		w.watches[id] = map[*watch]struct{}{}
	}
	one := &watch{notify}
	w.watches[id][one] = struct{}{}
	return func() { w.remove(id, one) }, nil
}

// control calls f with the descriptor. Fd would make the file blocking.
func (w *watcher) control(f func(fd int)) error {
	conn, err := w.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { f(int(fd)) })
	}
	return err
}

func (w *watcher) remove(wd int32, one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := w.watches[wd]
	if _, ok := set[one]; !ok {
		return // the file is gone, and the watch with it
	}
	if delete(set, one); len(set) == 0 {
		delete(w.watches, wd)
		// Fails if the file has just gone.
		_ = w.control(func(fd int) { _, _ = syscall.InotifyRmWatch(fd, uint32(wd)) })
	}
}

func (w *watcher) run() {
	defer close(w.done)
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return // closed
		}
		for b := buf[:n]; len(b) >= syscall.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(b))
			mask := binary.NativeEndian.Uint32(b[4:])
			size := min(len(b), syscall.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])))
			if name := bytes.TrimRight(b[syscall.SizeofInotifyEvent:size], "\x00"); len(name) == 0 || len(name) == numberLen {
				w.dispatch(wd, mask)
			} // else of another file of a directory than a ticket
			b = b[size:]
		}
	}
}

func (w *watcher) dispatch(wd int32, mask uint32) {
	w.mu.Lock()
	var hit []*watch
	if mask&syscall.IN_Q_OVERFLOW == 0 {
		hit = slices.Collect(maps.Keys(w.watches[wd]))
	} else { // events were dropped: any file may have changed
		for _, set := range w.watches {
			hit = slices.AppendSeq(hit, maps.Keys(set))
		}
	}
	if mask&syscall.IN_IGNORED != 0 {
		delete(w.watches, wd) // the kernel has removed it
	}
	w.mu.Unlock()
	for _, one := range hit {
		one.notify() // may end watches, so w.mu is free
	}
}

func (w *watcher) close() {
	w.file.Close()
	<-w.done
}
