//go:build !linux

package filelock

import "errors"

// canWatch: waiters look at their predecessor's file now and then.
const canWatch = false

type watcher struct{}

func newWatcher() (*watcher, error) { return nil, errors.ErrUnsupported }

func (*watcher) add(string, func()) (func(), error) { return nil, errors.ErrUnsupported }
func (*watcher) close()                             {}
