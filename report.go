package lock

import (
	"context"

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
	c.log.Event(ctx, e)
}

// reports says whether events go to an observer or to a log.
func (c *Client) reports() bool { return len(c.cfg.observers) > 0 || c.log.Warns() }

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
	return [...]func(context.Context, Event){
		engine.Waiting: o.Waiting, engine.Acquired: o.Acquired, engine.Failed: o.Failed, engine.Released: o.Released,
		engine.RenewFailed: o.RenewFailed, engine.Lost: o.Lost, engine.Forgotten: o.Forgotten,
	}[kind]
}
