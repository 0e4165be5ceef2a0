package record

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Caveats of every driver whose service does not end the lease of a dead holder: its waiters count the TTL.
const (
	CaveatDeadHolder = "A client takes the lock of a holder that died when it has itself seen it unchanged for a TTL, " +
		"by Lock or by calls of TryLock. A process that calls TryLock once and ends never has."
	CaveatClockRates = "The clocks of the clients must run at rates that differ by less than 0.1 %: chrony needs " +
		"maxslewrate 500 or less on each of them (its default, 83333, is 8.3 %)."
)

// Lateness is what a driver declares as [backend.Capabilities.Lateness] if a request crosses the network: a server that
// hangs for longer than a TTL may execute what it has received.
const Lateness = 5 * time.Minute

// Options configures [Locks].
type Options struct {
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
	store   Store
	held    Store // of grants
	opt     Options
	process string // random
	seen    watched
	freed   freed
}

// New returns the locks of a store.
func New(store Store, opt Options) *Locks {
	if opt.Held == nil {
		opt.Held = store
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Locks{store: store, held: opt.Held, opt: opt, process: hex.EncodeToString(id[:])}
}

// attempts is how often a request reads the record again after a conflict, before it gives
// up. Each conflict is a write of another client that succeeded.
const attempts = 20

// read returns the record of a key, and whether it has no holder.
func (l *Locks) read(ctx context.Context, key string) (Item, value, bool, error) {
	item, err := l.store.Read(ctx, key)
	if err != nil {
		return item, value{}, false, err
	}
	v, free, err := l.judge(ctx, key, item)
	return item, v, free, err
}

// judge returns the value of a record that was read, and whether it has no holder: it is free, or this client has seen it
// unchanged for the TTL. What another clock says ends no lease.
func (l *Locks) judge(ctx context.Context, key string, item Item) (value, bool, error) {
	v := l.decode(item)
	if v.foreign || !v.Held && len(v.Waiting) == 0 {
		l.seen.forget(key)
		return v, !v.Held, nil
	}
	unchanged := l.seen.look(key, written{cmp.Or(v.Origin, item.Version), v.Owner, v.Writes})
	if t, ok := l.store.(Timer); ok && v.Kept && unchanged < v.ttl() && !l.seen.timed(key) {
		elapsed, err := t.Elapsed(ctx, key, item)
		if err != nil {
			return v, false, err
		}
		l.seen.began(key, elapsed)
		unchanged = max(unchanged, elapsed)
	}
	v.unchanged = unchanged
	return v, v.unchanged >= v.ttl(), nil
}

// decode returns the value of a record, with the token of its holder.
func (l *Locks) decode(item Item) value {
	v := decode(item)
	switch {
	case v.foreign || v.Token > 0 || v.Owner == "":
	case l.opt.Token == nil:
		v = foreign(item)
	case v.Held:
		v.Token = l.opt.Token(item.Version)
	}
	return v
}

// TryAcquire implements backend.Backend.
func (l *Locks) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	return l.try(ctx, req, false)
}

func (l *Locks) try(ctx context.Context, req backend.Request, waits bool) (backend.Grant, error) {
	for range attempts {
		if g, _, err := l.attempt(ctx, req, waits); !errors.Is(err, ErrChanged) {
			return g, err
		}
	}
	return nil, backend.ErrLocked // others were faster
}

// look is what an attempt has read, or written.
type look struct {
	value
	item Item
	left time.Duration // until the attempt may take the record, if it stays as it is; zero if it never may
}

// attempt reads the record and takes it if it has no holder, and no process that waits is before this one. It returns
// ErrChanged if the record has changed in between. waits: the attempt is one of a process that waits, or will.
func (l *Locks) attempt(ctx context.Context, req backend.Request, waits bool) (g backend.Grant, at look, err error) {
	last, known := l.freed.take(req.Key)
	if known && last.alone {
		taken, err := l.take(ctx, req, Item{Version: last.version}, value{Token: last.token}, false)
		if err == nil {
			return taken, look{item: Item{Version: taken.version}}, nil
		}
		if !errors.Is(err, ErrChanged) {
			return nil, look{}, err
		}
	}
	item, v, _, err := l.read(ctx, req.Key)
	at = look{value: v, item: item}
	if err != nil {
		return nil, look{}, backend.NotExecuted(err)
	}
	mine := v.Held && v.Owner == req.Owner
	if !mine {
		turns := v.turns(l.process, req.TTL)
		at.left = max(0, v.ttl()+turns-v.unchanged)
		may := at.left == 0 && !v.foreign
		if !may && !waits {
			if may, err = l.elapsed(ctx, req.Key, at, turns); err != nil {
				return nil, at, backend.NotExecuted(err)
			}
		}
		if !may {
			return nil, at, v.refusal()
		}
	}
	taken, err := l.take(ctx, req, item, v, mine)
	if err != nil {
		return nil, at, err
	}
	taken.alone = !known || item.Version == last.version
	return taken, look{item: Item{Version: taken.version}}, nil
}

// refusal is the error of an attempt that must not take the record. A free one has no holder.
func (v *value) refusal() error {
	if !v.Held {
		return &backend.LockedError{}
	}
	return &backend.LockedError{Holder: v.holder()}
}

// take writes the record of a new grant, or that of a grant whose attempt is repeated.
func (l *Locks) take(ctx context.Context, req backend.Request, item Item, v value, mine bool) (*grant, error) {
	now := time.Now()
	next := value{
		Held: true, Owner: req.Owner, TTL: milliseconds(req.TTL), Metadata: req.Metadata,
		Process: l.process, Waiting: v.behind(l.process),
	}
	switch {
	case mine:
		next.Waiting = v.without(l.process)
		next.Token, next.Writes, next.TTL, next.Age = v.Token, v.Writes+1, max(v.TTL, next.TTL), v.Age
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
	l.seen.place(req.Key, false)
	until, since := now.Add(req.TTL), now.Add(-time.Duration(next.Age)*time.Millisecond)
	return &grant{
		l: l, key: req.Key, turn: make(chan struct{}, 1), token: next.Token, v: next, since: since,
		version: version, kept: until, until: until, alone: true,
	}, nil
}

// Abandon implements backend.Backend. It writes a record that a late request of the attempt could take, or in which a late
// one could write the place of this process, so that the request has an old version.
func (l *Locks) Abandon(ctx context.Context, req backend.Request) error {
	for range attempts {
		item, v, free, err := l.read(ctx, req.Key)
		if err != nil {
			return err
		}
		waiting, leaves := v.Waiting, l.seen.line(req.Key) == nil
		if leaves {
			waiting = v.without(l.process)
		}
		switch {
		case v.Held && (free || v.Owner == req.Owner), v.Owner == "":
			err = l.free(ctx, req.Key, item, v, waiting, req.Owner)
		case !v.Held, leaves && v.Version == format && (l.seen.placed(req.Key) || len(waiting) < len(v.Waiting)):
			_, err = l.edit(ctx, req.Key, item, v, waiting)
		}
		if err == nil && leaves {
			l.seen.place(req.Key, false)
		}
		if !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return ErrChanged
}

// free makes a record free, or writes one where there is none. by is who does it.
func (l *Locks) free(ctx context.Context, key string, item Item, v value, waiting []place, by string) error {
	next := value{Owner: by, Writes: v.Writes + 1, Token: v.Token, Waiting: waiting}
	if next.Token == 0 && l.opt.Token == nil {
		next.Token = uint64(time.Now().UnixMicro())
	}
	_, err := l.store.Write(ctx, key, next.encode(), item.Version, 0)
	l.seen.forget(key)
	return err
}

// Inspect implements backend.Inspector. The age of a holder is what it has written itself, and the time for which this
// client has seen that; the remaining time is an upper bound.
func (l *Locks) Inspect(ctx context.Context, key string) (backend.Info, error) {
	item, err := l.store.Read(ctx, key)
	if err != nil {
		return backend.Info{Name: key}, err
	}
	return l.Info(ctx, key, item)
}

// Info returns the state of a key whose record was read, as by a list. It has no holder if a client may take the key.
func (l *Locks) Info(ctx context.Context, key string, item Item) (backend.Info, error) {
	info := backend.Info{Name: key}
	v, free, err := l.judge(ctx, key, item)
	info.Waiters = v.waiters()
	if err == nil && !free {
		h := v.holder()
		info.Holder = &h
	}
	return info, err
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
		if err = l.free(ctx, key, item, v, v.Waiting, "break"); err == nil {
			return &h, nil
		}
		if !errors.Is(err, ErrChanged) {
			return nil, err
		}
	}
	return nil, ErrChanged
}
