package lock

import (
	"context"
	"time"

	"github.com/interlock-go/lock/internal/engine"
)

// Observer receives the events of a client. Each field may be nil. The functions are
// called synchronously in the goroutine in which the event happens, which may be one that
// asks a lease or its context for Err. So they must not block, take locks that are held
// around such calls, or close the client. ctx is the context of Lock or TryLock, or one
// with its values; it may have ended.
//
// Events come in pairs, so that counters return to zero:
//
//   - Every call of Lock and TryLock ends in one Acquired or one Failed. Its Event.Waited
//     says whether Waiting was reported. Nesting by WithReentry reports nothing, unless it
//     fails.
//   - Every Acquired is followed by one Released or one Lost with the same Event.Owner,
//     never before it. Closing the client releases.
//
// This holds, and every observer is called, also if another observer panics.
type Observer struct {
	// Waiting: a Lock found the lock held and waits. It is reported once. Event.Err is the
	// [*LockedError].
	Waiting func(ctx context.Context, e Event)
	// Acquired: a lease was granted, after Event.Wait.
	Acquired func(ctx context.Context, e Event)
	// Failed: Lock or TryLock returned Event.Err, after Event.Wait.
	Failed func(ctx context.Context, e Event)
	// Released: a lease was unlocked after Event.Held. Event.Err is what Unlock returned.
	Released func(ctx context.Context, e Event)
	// RenewFailed: a renewal failed with Event.Err; the lease is still trusted. It may be
	// reported a moment after the end of the lease.
	RenewFailed func(ctx context.Context, e Event)
	// Lost: a lease ended with Event.Err after Event.Held without Unlock.
	Lost func(ctx context.Context, e Event)
	// Forgotten: a lease is held, but the program can reach neither the Lease nor its context any
	// more, so it can never unlock it. It is reported once, after a garbage collection, in a
	// goroutine of its own. It is not reported for a lease that ends by itself (WithoutRenewal),
	// and not after the program has called Done of the lease or of its context: something may
	// still wait for that channel. A context derived from that of the lease keeps the lease
	// reachable until it is canceled.
	Forgotten func(ctx context.Context, e Event)
}

// Event is one event of a client.
type Event struct {
	Backend string
	Name    string
	Share   Share         // what was asked for
	Owner   string        // Lease.Owner, one for each grant; empty before the grant
	Token   uint64        // zero before the grant, or if the backend has none
	Wait    time.Duration // since the call of Lock or TryLock
	Waited  bool          // of Acquired and Failed: Waiting was reported for this call
	Held    time.Duration // since the grant
	Place   string        // of Forgotten: file and line of the call of Lock or TryLock, see WithPlace
	Err     error
}

// report passes an event of the engine to the observers and to the log.
func (c *Client) report(ctx context.Context, e engine.Event) {
	warns := e.Kind == engine.Lost || e.Kind == engine.Forgotten || e.Kind == engine.Overdue
	if len(c.cfg.observers) == 0 && c.cfg.log == nil && !warns {
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
		engine.Overdue: nil,
	}[kind]
}
