//go:build unix

package lockcmd

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// reaper waits for the orphans that this process adopts, as process 1 or on Linux as the
// reaper of its descendants, while no command runs. While a command runs process.wait does.
type reaper struct {
	once    sync.Once
	mu      sync.Mutex // guards running
	running bool       // a command
}

var orphans reaper

// commandRuns says whether a command runs.
func (r *reaper) commandRuns(running bool) {
	r.once.Do(func() {
		adoptOrphans()
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGCHLD)
		go func() {
			for range ended {
				r.reap()
			}
		}()
	})
	r.mu.Lock()
	r.running = running
	r.mu.Unlock()
	r.reap()
}

func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.running {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
