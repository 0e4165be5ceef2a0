package lock

import (
	"context"
	"log/slog"
	"time"

	"github.com/interlock-go/lock/internal/engine"
)

// report passes an event of the engine to the observers and to the log.
func (c *Client) report(ctx context.Context, e engine.Event) {
	if len(c.cfg.observers) == 0 && c.cfg.log == nil && e.Kind != engine.Lost && e.Kind != engine.Forgotten {
		return // the others do not go to the default logger
	}
	switch e.Kind {
	case engine.Failed:
		e.Err = c.wrap(e.Op, e.Key, e.Err)
	case engine.Released:
		e.Err = c.wrap("unlock", e.Key, e.Err)
	}
	if len(c.cfg.observers) > 0 {
		notifyObservers(ctx, c.cfg.observers, e.Kind, Event{
			Backend: c.name, Name: e.Key, Share: e.Share, Owner: e.Owner, Token: e.Token,
			Wait: e.Wait, Waited: e.Waited, Held: e.Held, Place: e.Place, Err: e.Err,
		})
	}
	switch log := c.logger(slog.LevelWarn); {
	case e.Kind == engine.Lost:
		c.logLoss(ctx, e)
	case e.Kind == engine.Forgotten && log != nil:
		log.WarnContext(ctx, "lock forgotten: it is held, but neither its lease nor the context of that is reachable",
			"name", e.Key, "backend", c.name, "token", e.Token, "held", e.Held, "place", e.Place)
	case c.cfg.log != nil:
		c.debug(ctx, e)
	}
}

// reports says whether events go to an observer or to a log.
func (c *Client) reports() bool {
	return len(c.cfg.observers) > 0 || c.logger(slog.LevelWarn) != nil
}

// notifyObservers calls all observers, also if one of them panics.
func notifyObservers(ctx context.Context, observers []*Observer, kind engine.Kind, e Event) {
	if len(observers) == 0 {
		return
	}
	defer notifyObservers(ctx, observers[1:], kind, e)
	if f := observers[0].function(kind); f != nil {
		f(ctx, e)
	}
}

func (o *Observer) function(kind engine.Kind) func(context.Context, Event) {
	switch kind {
	case engine.Waiting:
		return o.Waiting
	case engine.Acquired:
		return o.Acquired
	case engine.Failed:
		return o.Failed
	case engine.Released:
		return o.Released
	case engine.RenewFailed:
		return o.RenewFailed
	case engine.Lost:
		return o.Lost
	default:
		return o.Forgotten
	}
}

// logger returns where a line of a level goes, nil for nowhere. The default logger gets no line
// below Warn: a program that has turned on Debug for itself would get one for each Lock.
func (c *Client) logger(level slog.Level) *slog.Logger {
	if !c.cfg.logGiven && level >= slog.LevelWarn {
		return slog.Default()
	}
	return c.cfg.log
}

// logLoss logs that a lease was lost.
func (c *Client) logLoss(ctx context.Context, e engine.Event) {
	level := slog.LevelWarn
	if e.Nth > maxLossLines {
		level = slog.LevelDebug
	}
	if log := c.logger(level); log != nil {
		log.Log(ctx, level, "lock lost", "name", e.Key, "backend", c.name, "token", e.Token, "held", e.Held, "err", e.Err)
	}
}

// debug logs an event other than a loss.
func (c *Client) debug(ctx context.Context, e engine.Event) {
	log, name := c.cfg.log, c.name
	switch e.Kind {
	case engine.Waiting:
		log.DebugContext(ctx, "waiting for lock", "name", e.Key, "backend", name, "holder", e.Err.Error())
	case engine.Acquired:
		log.DebugContext(ctx, "lock acquired", "name", e.Key, "backend", name, "token", e.Token, "wait", e.Wait)
	case engine.Failed:
		log.DebugContext(ctx, "lock not acquired", "name", e.Key, "backend", name, "wait", e.Wait, "err", e.Err)
	case engine.Released:
		log.DebugContext(ctx, "lock released", "name", e.Key, "backend", name, "token", e.Token, "held", e.Held, "err", e.Err)
	case engine.RenewFailed:
		log.DebugContext(ctx, "lock renewal failed, will try again", "name", e.Key, "backend", name, "token", e.Token, "err", e.Err)
	}
}

// maxLossLines is how many of the leases that an outage costs are logged at level Warn, each
// by its name. The line at the end of the outage has their number.
const maxLossLines = 3

// outage logs that renewals begin to fail, or that none fails any more.
func (c *Client) outage(o engine.Outage) {
	log := c.logger(slog.LevelWarn).With("backend", c.name, "leases", o.Affected)
	if o.Over {
		log.Warn("lock renewals do not fail any more", "after", o.Lasted, "lost", o.Lost)
	} else {
		log.Warn("lock renewals fail, will try again", "err", o.Err)
	}
}

// status logs that a part of the service fails, or serves again.
func (c *Client) status(what string, err error) {
	log := c.logger(slog.LevelWarn)
	switch {
	case log == nil:
	case err != nil:
		log.Warn("lock: "+what, "backend", c.name, "err", err)
	default:
		log.Warn("lock: "+what, "backend", c.name)
	}
}

// warnInterval is the least time between two lines about failures in the background at level
// Warn. The others are logged at level Debug.
const warnInterval = 10 * time.Second

// warn logs a failure in the background, which no caller sees.
func (c *Client) warn(what, name string, err error) {
	level := slog.LevelDebug
	now := time.Now().UnixNano()
	if last := c.warned.Load(); (last == 0 || now-last >= int64(warnInterval)) && c.warned.CompareAndSwap(last, now) {
		level = slog.LevelWarn
	}
	if log := c.logger(level); log != nil {
		log.Log(context.Background(), level, "lock: "+what+" failed", "name", name, "backend", c.name, "err", err)
	}
}
