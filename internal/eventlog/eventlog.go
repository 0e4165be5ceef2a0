// Package eventlog writes the log lines of a client.
package eventlog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/internal/engine"
)

// Log writes lines of one client. Its fields are set before the first line.
type Log struct {
	Backend string       // the name of the driver
	Logger  *slog.Logger // that of the program; nil is none
	Default bool         // the program has not chosen one: warnings go to slog.Default()

	failed, overdue atomic.Int64 // when the last line at level Warn was written, in Unix nanoseconds; see seldom
}

// at returns where a line of a level goes, nil for nowhere. The default logger gets no line
// below Warn: a program that has turned on Debug for itself would get one for each Lock.
func (l *Log) at(level slog.Level) *slog.Logger {
	if l.Default && level >= slog.LevelWarn {
		return slog.Default()
	}
	return l.Logger
}

// Warns reports whether warnings are written.
func (l *Log) Warns() bool { return l.at(slog.LevelWarn) != nil }

// maxLossLines is how many of the leases that an outage costs are logged at level Warn, each
// by its name. The line at the end of the outage has their number.
const maxLossLines = 3

// Event writes the line of an event.
func (l *Log) Event(ctx context.Context, e engine.Event) {
	level := slog.LevelDebug
	switch {
	case e.Kind == engine.Forgotten, e.Kind == engine.Lost && e.Nth <= maxLossLines:
		level = slog.LevelWarn
	case e.Kind == engine.Overdue:
		level = seldom(&l.overdue)
	}
	log := l.at(level)
	if log == nil {
		return
	}
	text, more := "", []any{"token", e.Token}
	switch e.Kind {
	case engine.Waiting:
		text, more = "waiting for lock", []any{"holder", e.Err.Error()}
	case engine.Overdue:
		text = "waiting for lock without a limit; WithWait or a context with a deadline bounds it"
		more = []any{"wait", e.Wait, "holder", e.Err.Error()}
	case engine.Acquired:
		text, more = "lock acquired", append(more, "wait", e.Wait)
	case engine.Failed:
		text, more = "lock not acquired", []any{"wait", e.Wait, "err", e.Err}
	case engine.Released:
		text, more = "lock released", append(more, "held", e.Held, "err", e.Err)
	case engine.RenewFailed:
		text, more = "lock renewal failed, will try again", append(more, "err", e.Err)
	case engine.Lost:
		text, more = "lock lost", append(more, "held", e.Held, "err", e.Err)
	case engine.Forgotten:
		text, more = "lock forgotten: it is held, but neither its lease nor the context of that is reachable", append(more, "held", e.Held, "place", e.Place)
	}
	log.Log(ctx, level, text, append([]any{"name", e.Key, "backend", l.Backend}, more...)...)
}

// Outage writes that renewals begin to fail, or that none fails any more.
func (l *Log) Outage(o engine.Outage) {
	log := l.at(slog.LevelWarn).With("backend", l.Backend, "leases", o.Affected)
	if o.Over {
		log.Warn("lock renewals do not fail any more", "after", o.Lasted, "lost", o.Lost)
	} else {
		log.Warn("lock renewals fail, will try again", "err", o.Err)
	}
}

// Status writes that a part of the service fails, or serves again.
func (l *Log) Status(what string, err error) {
	switch log := l.at(slog.LevelWarn); {
	case log == nil:
	case err != nil:
		log.Warn("lock: "+what, "backend", l.Backend, "err", err)
	default:
		log.Warn("lock: "+what, "backend", l.Backend)
	}
}

// Opening writes that the backend could not be opened at once, or that it is open now.
func (l *Log) Opening(err error) {
	if err != nil {
		l.Status("the backend is not open yet, will try again", err)
	} else {
		l.Status("the backend is open", nil)
	}
}

// warnInterval is the least time between two lines at level Warn of which there may be thousands. The others are logged
// at level Debug.
const warnInterval = 10 * time.Second

// seldom returns the level of a line, when one was last logged at level Warn at that time.
func seldom(last *atomic.Int64) slog.Level {
	now, then := time.Now().UnixNano(), last.Load()
	if (then == 0 || now-then >= int64(warnInterval)) && last.CompareAndSwap(then, now) {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// Failed writes that work in the background failed, which no caller sees.
func (l *Log) Failed(what, name string, err error) {
	level := seldom(&l.failed)
	if log := l.at(level); log != nil {
		log.Log(context.Background(), level, "lock: "+what+" failed", "name", name, "backend", l.Backend, "err", err)
	}
}
