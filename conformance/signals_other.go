//go:build !unix || aix

package conformance

import (
	"errors"
	"runtime"
)

var needSignals = need{"SIGSTOP", func(*T) (Status, string) {
	return NotRun, "a process cannot be stopped on " + runtime.GOOS
}}

func (p *process) stop() error { return errors.ErrUnsupported }
func (p *process) resume()     {}
