package record

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// grant is a record that an attempt holds.
type grant struct {
	l     *Locks
	key   string
	token uint64
	since time.Time // the beginning of the lease
	alone bool      // no other client has written the record since this process has made it free

	turn    chan struct{} // has an element during a request, and guards the fields below: Release may overlap a Renew
	v       value         // as it was last written, or may have been
	version string        // of v; "" if it is not known
	kept    time.Time     // the service keeps the record until then at least
	ending  bool          // a release has no reply
	ended   bool          // a release has succeeded
	freed   bool          // a release was executed, although its reply was a refusal: a proxy had sent it twice

	mu    sync.Mutex // guards until
	until time.Time
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	defer g.end()
	now := time.Now()
	next, keep := g.renewal(now, ttl)
	if err := g.write(ctx, &next); err != nil {
		return err
	}
	g.extended(now, keep, ttl)
	return nil
}

// renewal returns the value of a renewal to ttl from now, and for how long the service keeps it: never shorter than before.
func (g *grant) renewal(now time.Time, ttl time.Duration) (next value, keep time.Duration) {
	keep = max(ttl, g.kept.Sub(now))
	return g.next(now, keep), keep
}

// Keep implements backend.Keeper. Other clients count d from this record, and a Timer counts it for those that come later.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	defer g.end()
	if t, ok := g.l.held.(Timer); ok {
		if err := t.Start(ctx, g.key, d); err != nil {
			return backend.NotExecuted(err)
		}
	}
	now := time.Now()
	next := g.next(now, d)
	next.Kept = true
	if err := g.write(ctx, &next); err != nil {
		return err
	}
	g.extended(now, d, d)
	return nil
}

// extended records that the service keeps the record for keep, and that the lease is trusted for ttl from now.
func (g *grant) extended(now time.Time, keep, ttl time.Duration) {
	g.kept = now.Add(keep)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = now.Add(ttl)
}

func (g *grant) Release(ctx context.Context) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	defer g.end()
	next := g.next(g.since, 0)
	next.Held, next.Metadata, next.Process = false, "", ""
	err := g.write(ctx, &next)
	switch {
	case err == nil:
		g.ended = true
		g.released(&next)
	case backend.OutcomeUnknown(err):
		g.ending = true
	case (g.ending || g.freed) && errors.Is(err, backend.ErrLost):
		return nil // the release before was executed, or the grant had ended
	}
	return err
}

// begin waits until no other request is under way.
func (g *grant) begin(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return backend.NotExecuted(ctx.Err())
	}
}

func (g *grant) end() { <-g.turn }

// next returns the value to write, with a number of writes that no earlier one has.
func (g *grant) next(now time.Time, ttl time.Duration) value {
	g.v.Writes++
	next := g.v
	next.TTL, next.Age = milliseconds(ttl), max(0, milliseconds(now.Sub(g.since)))
	return next
}

// write writes a value if this grant holds the record. It reads the version if it is not known:
// the service did not return it, or the last write had no reply.
func (g *grant) write(ctx context.Context, next *value) error {
	for range attempts {
		version, ours, err := g.current(ctx)
		switch {
		case err != nil:
			return backend.NotExecuted(err)
		case !ours:
			return backend.ErrLost
		}
		if next.Waiting = g.v.Waiting; !next.Held {
			g.addOwn(next)
		}
		g.version = "" // until a reply says it
		version, err = g.l.held.Write(ctx, g.key, next.encode(), version, next.ttl())
		switch {
		case err == nil:
			g.version = version
			return nil
		case !errors.Is(err, ErrChanged):
			return err
		}
	}
	return ErrChanged
}

// addOwn adds the place of this process to a record that becomes free, if others of its attempts wait.
func (g *grant) addOwn(next *value) {
	w := g.l.seen.line(g.key)
	if w == nil || next.index(g.l.process) >= 0 || len(next.Waiting) >= maxPlaces {
		return
	}
	g.l.seen.place(g.key, true)
	next.Waiting = append(slices.Clone(next.Waiting), place{g.l.process, milliseconds(w.turn)})
}

// released remembers the record that became free, and wakes the first waiter of this process.
func (g *grant) released(free *value) {
	if g.version != "" && len(free.Waiting) == 0 {
		g.l.freed.add(g.key, left{g.version, g.token, g.alone, time.Now().Add(g.v.ttl())})
	}
	if w := g.l.seen.line(g.key); w != nil {
		select {
		case w.released <- struct{}{}:
		default: // it will read the record
		}
	}
}

// current returns the version to write over, and whether this grant holds the record.
func (g *grant) current(ctx context.Context) (version string, ours bool, err error) {
	if g.ended || g.version != "" {
		return g.version, !g.ended, nil
	}
	item, err := g.l.held.Read(ctx, g.key)
	if err != nil {
		return "", false, err
	}
	v := decode(item)
	g.v.Waiting = v.Waiting
	own := item.Version != "" && v.Owner == g.v.Owner
	g.freed = own && !v.Held
	return item.Version, own && v.Held, nil
}
