package filelock

import "github.com/interlock-go/lock/backend"

// watch calls notify, from one goroutine, after each event of the file that may mean the
// end of its ticket, until cancel is called. It returns false if there are no events:
// then the caller polls.
func (b *Backend) watch(path string, notify func()) (cancel func(), ok bool) {
	w, err := b.watcher()
	if err != nil {
		return nil, false
	}
	cancel, err = w.add(path, notify)
	return cancel, err == nil
}

// watcher opens the inotify instance with the first watch. After a failure, for example
// at a limit, the next watch tries again.
func (b *Backend) watcher() (*watcher, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events == nil {
		if b.closed {
			return nil, backend.ErrClosed
		}
		w, err := newWatcher()
		if err != nil {
			return nil, err
		}
		b.events = w
	}
	return b.events, nil
}
