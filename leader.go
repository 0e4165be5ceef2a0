package lock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Leader tells who holds m, or nil if nobody does. It asks the backend once; what it
// says may be over when it arrives. m is a lock of a Client whose backend can inspect,
// or one that is being migrated (the old lock is asked until PhaseNew), or has
// a method Inspect(context.Context) (Info, error); others, such as All, match
// errors.ErrUnsupported.
func Leader(ctx context.Context, m Mutex) (*Holder, error) {
	info, err := inspect(ctx, m)
	return info.Holder, err
}

func inspect(ctx context.Context, m Mutex) (Info, error) {
	switch m := m.(type) {
	case *mutex:
		if m.err != nil {
			return Info{}, m.client.wrap("inspect", m.name, m.err)
		}
		return m.client.Inspect(ctx, m.name)
	case *migration:
		if m.err != nil {
			return Info{}, jointError("inspect", m.Name(), m.err)
		}
		return inspect(ctx, m.parts()[0])
	case interface {
		Inspect(ctx context.Context) (Info, error)
	}:
		return m.Inspect(ctx)
	}
	return Info{}, jointError("inspect", m.Name(), errors.ErrUnsupported)
}

// WatchLeader yields who holds m at first and then at each change, nil for nobody, for
// as long as ctx lasts. It asks the backend each interval, which is positive, so
// a change is seen an interval later at most, and a leader whose whole term lies
// between two questions is not seen.
//
// A question that fails is yielded as an error, once until an answer comes, which is
// then yielded even if nothing has changed; WatchLeader goes on unless asking can never
// succeed.
func WatchLeader(ctx context.Context, m Mutex, interval time.Duration) iter.Seq2[*Holder, error] {
	return func(yield func(*Holder, error) bool) {
		if interval <= 0 {
			yield(nil, jointError("watch", m.Name(), backend.Invalid("interval", interval, "a positive duration")))
			return
		}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		known, failing := false, false
		var last *Holder
		for {
			leader, err := Leader(ctx, m)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && (!failing || !transient(err)):
				if known, failing = false, true; !yield(nil, err) || !transient(err) {
					return
				}
			case err == nil && (!known || !sameHolder(last, leader)):
				if known, failing, last = true, false, leader; !yield(leader, nil) {
					return
				}
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

func sameHolder(x, y *Holder) bool {
	if x == nil || y == nil {
		return x == y
	}
	return x.Owner == y.Owner && x.Token == y.Token
}
