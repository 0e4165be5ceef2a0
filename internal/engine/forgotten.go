package engine

import (
	"context"
	"fmt"
	"runtime"
	"strings"
)

// Waited notes that something waits for the end of the lease.
func (l *Lease) Waited() { l.waited.Store(true) }

// Forgotten reports a lease that the program cannot reach any more, and releases it if release is
// set. It does nothing if the lease has ended, if it ends by itself, or if something waits for
// its end. It is called by the garbage collector, so it must not block, and asks no clock: that
// of a synctest bubble does not run here.
func (l *Lease) Forgotten(release bool) {
	h := l.held
	h.mu.Lock()
	held := h.cause == nil && l.released == nil
	endsAlone := h.params.Fixed && !h.trustedUntil.IsZero()
	h.mu.Unlock()
	if !held || endsAlone || l.waited.Load() || !h.engine.tasks.BeginCleanup() {
		return
	}
	go func() {
		defer h.engine.tasks.Done()
		if report := h.engine.cfg.Report; report != nil {
			e := h.event(Forgotten, nil)
			e.Place = l.Place
			report(l.Context(), e)
		}
		if release {
			_ = l.Release(context.Background()) // Released reports its error
		}
	}()
}

// CallerPlace returns the file and line of the first caller whose function does not begin with
// prefix.
func CallerPlace(prefix string) string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, prefix) || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
	}
}
