package bench

import (
	"context"
	"strings"
	"sync"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// ttl is the TTL of all peers that have one. It is the default of this library, too.
const ttl = 30 // seconds

// peer is a client of another library.
type peer struct {
	lock  func(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	ping  func(ctx context.Context) error
	close func() error
}

var _ measure.Client = (*peer)(nil)

func (p *peer) Ping(ctx context.Context) error { return p.ping(ctx) }

func (p *peer) Close(context.Context) error { return p.close() }

func (p *peer) Lock(ctx context.Context, name string) (measure.Lease, error) {
	unlock, err := p.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return held(unlock), nil
}

// held is a lock without a fencing token: none of the peers has one.
type held func(context.Context) error

func (held) Token() (uint64, bool)              { return 0, false }
func (h held) Unlock(ctx context.Context) error { return h(ctx) }

// target returns a target that opens a peer.
func target(name string, open func(ctx context.Context) (*peer, error)) measure.Target {
	return measure.Target{Name: name, Open: func(ctx context.Context) (measure.Client, error) {
		p, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return p, nil
	}}
}

// writes are the two writes of a floor.
type writes struct {
	lock, unlock func(ctx context.Context, name string) error
}

// floor returns a target of two writes without a lock, of a row or key for each name: the share of the service in a lock
// and an unlock, such as the waits for its disk.
func floor(open func(ctx context.Context) (writes, *peer, error)) measure.Target {
	t := target(twoWrites, func(ctx context.Context) (*peer, error) {
		w, p, err := open(ctx)
		if err != nil {
			return nil, err
		}
		p.lock = func(ctx context.Context, name string) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return w.unlock(ctx, name) }, w.lock(ctx, name)
		}
		return p, nil
	})
	t.Alone = true
	return t
}

const twoWrites = "two writes"

// once calls f for each name once, until it has succeeded.
type once struct{ done sync.Map }

func (o *once) do(name string, f func() error) error {
	if _, ok := o.done.Load(name); ok {
		return nil
	}
	err := f()
	if err == nil {
		o.done.Store(name, nil)
	}
	return err
}

func addrOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	addr, _, _ := strings.Cut(rest, "/")
	return addr
}
