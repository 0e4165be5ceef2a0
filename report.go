package lock

import (
	"context"

	"github.com/interlock-go/lock/internal/engine"
)

// report passes an event of the engine to the observers and to the log.
func (c *Client) report(ctx context.Context, e engine.Event) {
	switch e.Kind {
	case engine.Failed:
		e.Err = c.wrap(e.Op, e.Key, e.Err)
	case engine.Released:
		e.Err = c.wrap("unlock", e.Key, e.Err)
	}
	if len(c.cfg.observers) > 0 {
		notifyObservers(ctx, c.cfg.observers, e.Kind, Event{
			Backend: c.caps.Name, Name: e.Key, Owner: e.Owner, Token: e.Token,
			Wait: e.Wait, Waited: e.Waited, Held: e.Held, Err: e.Err,
		})
	}
	if c.cfg.log != nil {
		c.log(ctx, e)
	}
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
	default:
		return o.Lost
	}
}

func (c *Client) log(ctx context.Context, e engine.Event) {
	log, name := c.cfg.log, c.caps.Name
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
		log.InfoContext(ctx, "lock renewal failed, will try again", "name", e.Key, "backend", name, "token", e.Token, "err", e.Err)
	case engine.Lost:
		log.WarnContext(ctx, "lock lost", "name", e.Key, "backend", name, "token", e.Token, "held", e.Held, "err", e.Err)
	}
}

// status logs that a part of the service fails, or serves again.
func (c *Client) status(what string, err error) {
	switch {
	case c.cfg.log == nil:
	case err != nil:
		c.cfg.log.Warn("lock: "+what, "backend", c.caps.Name, "err", err)
	default:
		c.cfg.log.Info("lock: "+what, "backend", c.caps.Name)
	}
}

// warn logs a failure in the background, which no caller sees.
func (c *Client) warn(what, name string, err error) {
	if c.cfg.log != nil {
		c.cfg.log.Warn("lock: "+what+" failed", "name", name, "backend", c.caps.Name, "err", err)
	}
}
