package filelock

import "github.com/interlock-go/lock/backend"

// watch calls notify whenever something happened to the file that may mean the end
// of its ticket, from one goroutine, until cancel is called. It reports false if
// nothing will call: then the file must be looked at now and then.
func (b *Backend) watch(path string, notify func()) (cancel func(), ok bool) {
	w, err := b.watcher()
	if err != nil {
		return nil, false
	}
	cancel, err = w.add(path, notify)
	return cancel, err == nil
}

// watcher opens the inotify instance with the first watch. A failure is not
// remembered: the limit that it hit may be free the next time.
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
