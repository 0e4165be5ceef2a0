//go:build !linux

package filelock

// canWatch is false: waiters poll the file of their predecessor.
const canWatch = false

type watcher struct{}

func (*watcher) close() {}

func (*Backend) watch(string, func()) (func(), bool) { return nil, false }
