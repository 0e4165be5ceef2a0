package record

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// DefaultMargin is the default of [Options.Margin].
const DefaultMargin = 10 * time.Minute

// CaveatMargin is a caveat of every driver with an option WithMargin whose default is DefaultMargin.
const CaveatMargin = "A client takes the lock of a holder that died when it has watched it for a TTL. " +
	"A TryLock of a new process cannot, until the margin has passed too (10 minutes, see WithMargin)."

// Lateness is what a driver declares as [backend.Capabilities.Lateness] if a request crosses the network: a server that
// hangs for longer than a TTL may execute what it has received.
const Lateness = 5 * time.Minute

// Options configures [Locks].
type Options struct {
	// Margin is for how long beyond its TTL a record must be unchanged by the clock of the service,
	// until a client that has not watched it may take it; zero: DefaultMargin. The clocks of
	// the service must not jump by it.
	Margin time.Duration
	// Token returns the fencing token of the grant that was written as that version, for
	// services whose versions are numbers that rise for ever. Write must return the version then. If
	// Token is nil, tokens are counted in the record, and begin with the microseconds of the Unix
	// epoch, by the clock of the client, where there is no record.
	Token func(version string) uint64
	// Held is the Store with which a grant is renewed and released, for a driver that keeps connections for that;
	// nil: the Store of the locks.
	Held Store
}

// Locks are the locks of a Store. They implement backend.Backend but for Capabilities and Close, and
// backend.Inspector and backend.Breaker. They never call Request.OnLost: a holder learns of a break by
// its next renewal. All methods may be called by any number of goroutines.
type Locks struct {
	store Store
	held  Store // of grants
	opt   Options
	seen  watched
}

// New returns the locks of a store.
func New(store Store, opt Options) *Locks {
	if opt.Margin == 0 {
		opt.Margin = DefaultMargin
	}
	if opt.Held == nil {
		opt.Held = store
	}
	return &Locks{store: store, held: opt.Held, opt: opt}
}

// attempts is how often a request reads the record again after a conflict, before it gives
// up. Each conflict is a write of another client that succeeded.
const attempts = 20

// read returns the record of a key, and whether a client may take it.
func (l *Locks) read(ctx context.Context, key string) (Item, value, bool, error) {
	item, err := l.store.Read(ctx, key)
	if err != nil {
		return item, value{}, false, err
	}
	v, free := l.judge(key, item)
	return item, v, free, nil
}

// judge returns the value of a record that was received, and whether a client may take it.
func (l *Locks) judge(key string, item Item) (value, bool) {
	v := l.decode(item)
	if !v.Held || v.foreign {
		l.seen.forget(key)
		return v, !v.Held
	}
	unchanged := l.seen.look(key, written{item.Version, v.Owner, v.Writes}, v.ttl())
	return v, unchanged >= v.ttl() || item.Idle >= v.ttl()+l.opt.Margin
}

// decode returns the value of a record, with the token of its holder.
func (l *Locks) decode(item Item) value {
	v := decode(item)
	if v.Held && v.Token == 0 && l.opt.Token != nil && !v.foreign {
		v.Token = l.opt.Token(item.Version)
	}
	return v
}

// TryAcquire implements backend.Backend.
func (l *Locks) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	for range attempts {
		item, err := l.store.Read(ctx, req.Key)
		if err != nil {
			return nil, backend.NotExecuted(err)
		}
		if g, err := l.tryItem(ctx, req, item); !errors.Is(err, ErrChanged) {
			return g, err
		}
	}
	return nil, backend.ErrLocked // others were faster
}

// tryItem makes the attempt on a record that was received. It returns ErrChanged if the record has
// changed since.
func (l *Locks) tryItem(ctx context.Context, req backend.Request, item Item) (backend.Grant, error) {
	v, free := l.judge(req.Key, item)
	mine := v.Held && v.Owner == req.Owner
	if !free && !mine {
		return nil, &backend.LockedError{Holder: v.holder()}
	}
	return l.take(ctx, req, item, v, mine)
}

// take writes the record of a new grant, or that of a grant whose attempt is repeated.
func (l *Locks) take(ctx context.Context, req backend.Request, item Item, v value, mine bool) (backend.Grant, error) {
	now := time.Now()
	next := value{Held: true, Owner: req.Owner, TTL: milliseconds(req.TTL), Metadata: req.Metadata, Since: now.UnixMilli(), Renewed: now.UnixMilli()}
	switch {
	case mine:
		next.Token, next.Writes, next.TTL, next.Since = v.Token, v.Writes+1, max(v.TTL, next.TTL), v.Since
	case l.opt.Token != nil: // that of the version which the write returns
	case v.Token == 0:
		next.Token = uint64(now.UnixMicro())
	default:
		next.Token = v.Token + 1
	}
	version, err := l.store.Write(ctx, req.Key, next.encode(), item.Version, req.TTL)
	if err != nil {
		return nil, err
	}
	if next.Token == 0 {
		next.Token = l.opt.Token(version)
	}
	l.seen.forget(req.Key)
	until := now.Add(req.TTL)
	return &grant{l: l, key: req.Key, turn: make(chan struct{}, 1), token: next.Token, v: next, version: version, kept: until, until: until}, nil
}

// Abandon implements backend.Backend. It writes a record that a late request of the attempt
// could take, so that the request has an old version.
func (l *Locks) Abandon(ctx context.Context, req backend.Request) error {
	for range attempts {
		item, v, free, err := l.read(ctx, req.Key)
		if err != nil {
			return err
		}
		if !free && v.Owner != req.Owner {
			return nil
		}
		if err = l.free(ctx, req.Key, item, v, req.Owner); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

// free makes a record free, or writes a free one again. by is who does it.
func (l *Locks) free(ctx context.Context, key string, item Item, v value, by string) error {
	next := value{Owner: by, Writes: v.Writes + 1, Token: v.Token}
	if next.Token == 0 && l.opt.Token == nil {
		next.Token = uint64(time.Now().UnixMicro())
	}
	_, err := l.store.Write(ctx, key, next.encode(), item.Version, 0)
	l.seen.forget(key)
	return err
}

// Inspect implements backend.Inspector. Ages and remaining times are those of the clocks of
// clients.
func (l *Locks) Inspect(ctx context.Context, key string) (backend.Info, error) {
	info := backend.Info{Name: key}
	_, v, free, err := l.read(ctx, key)
	if err == nil && !free {
		h := v.holder()
		info.Holder = &h
	}
	return info, err
}

// Info returns the state of a key whose record was read by a list. It has no holder if the key
// is free.
func (l *Locks) Info(key string, item Item) backend.Info {
	info := backend.Info{Name: key}
	if v := l.decode(item); v.Held {
		h := v.holder()
		info.Holder = &h
	}
	return info
}

// Break implements backend.Breaker.
func (l *Locks) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	for range attempts {
		item, v, free, err := l.read(ctx, key)
		switch {
		case err != nil:
			return nil, err
		case free && !v.Held, free && owner != "" && v.Owner != owner:
			return nil, nil
		}
		h := v.holder()
		if owner != "" && v.Owner != owner {
			return nil, &backend.LockedError{Holder: h}
		}
		if err = l.free(ctx, key, item, v, "break"); err == nil {
			return &h, nil
		}
		if !errors.Is(err, ErrChanged) {
			return nil, err
		}
	}
	return nil, ErrChanged
}
