//go:build !linux

package filelock

import "errors"

// canWatch is false: waiters poll the file of their predecessor.
const canWatch = false

type watcher struct{}

func newWatcher() (*watcher, error) { return nil, errors.ErrUnsupported }

func (*watcher) add(string, func()) (func(), error) { return nil, errors.ErrUnsupported }
func (*watcher) close()                             {}
