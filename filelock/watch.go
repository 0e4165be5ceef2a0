package filelock

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
// at a limit, the next watch tries again. Close closes the instance when no operation is under way,
// so none is opened after that.
func (b *Backend) watcher() (*watcher, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events == nil {
		w, err := newWatcher()
		if err != nil {
			return nil, err
		}
		b.events = w
	}
	return b.events, nil
}
