package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

var (
	_ backend.Keeper     = (*grant)(nil)
	_ backend.Downgrader = (*grant)(nil)
	_ backend.SlotHolder = (*grant)(nil)
)

// mode is which row has the lease of a grant.
type mode int

const (
	exclusive mode = iota // that of the lock
	shared                // that of a shared holder
	either                // one of them: a downgrade was not answered
)

type grant struct {
	b          *Backend
	req        backend.Request
	token      uint64
	unanswered bool // a request of the attempt had no answer: the server may execute it later
	contended  bool // others waited for the key when it was granted
	shares     bool // readers or permits held the key or waited for it then
	slots      []int

	downgradeUnknown bool // a request to downgrade had no answer; the calls of Downgrade do not overlap

	mu    sync.Mutex // guards the fields below
	mode  mode
	until time.Time
	sent  time.Time // of the renewal that until comes from
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// Renew executes one statement.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.setEnd(ctx, g.b.renew(g.req, g.at(), ttl), ttl)
}

// Keep implements backend.Keeper by one statement.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	err := g.setEnd(ctx, g.b.keep(g.req, g.at(), d), d)
	if err == nil {
		g.b.notifier.releaseName(g.req.Owner) // waiters know of a later end
	}
	return err
}

// setEnd executes a statement that sets the end of the lease to d from now.
func (g *grant) setEnd(ctx context.Context, q string, d time.Duration) error {
	sent := time.Now()
	n, err := g.b.exec(ctx, q)
	if err != nil {
		return err
	}
	if n == 0 {
		g.b.notifier.releaseName(g.req.Owner) // there is no release
		return g.lost()
	}
	g.renewed(sent, d)
	return nil
}

// renewed records a renewal that was sent at sent. A batch may be answered after a later
// renewal was, and then changes nothing.
func (g *grant) renewed(sent time.Time, ttl time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !sent.Before(g.sent) {
		g.sent, g.until = sent, sent.Add(ttl)
	}
}

// Release sends one packet, or two if the first waiter came after the grant.
func (g *grant) Release(ctx context.Context) error {
	mode := g.currentMode()
	held, err := g.release(ctx, mode)
	for err == nil && !held && g.currentMode() != mode { // a Downgrade at the same time has moved the lease
		mode = g.currentMode()
		held, err = g.release(ctx, mode)
	}
	if err == nil && !held {
		err = g.lost()
	}
	return err
}

func (g *grant) release(ctx context.Context, mode mode) (held bool, err error) {
	v := values{req: g.req, hold: true}
	if mode != exclusive {
		v.share, v.slots, v.hold = sharePlace(g.token), g.slots, mode == shared
	}
	shares := mode != exclusive || g.shares
	if !g.contended && !g.unanswered && mode != either {
		p := g.b.releasePacket(v)
		if mode == shared {
			p = g.b.releaseSharePacket(v)
		}
		l, err := g.b.leaveBy(ctx, g.req, p)
		if err != nil || l.done {
			return l.held, err
		}
		shares = shares || l.shares
	}
	return g.b.leave(ctx, v, g.unanswered, shares)
}

func (g *grant) currentMode() mode {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode
}

func (g *grant) setMode(m mode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = m
}

// at returns the places of the row that has the lease, with a comma.
func (g *grant) at() string {
	share := fmt.Sprint(sharePlace(g.token))
	return [...]string{exclusive: "0", shared: share, either: "0," + share}[g.currentMode()]
}

// Slots implements backend.SlotHolder.
func (g *grant) Slots() []int { return slices.Clone(g.slots) }

// Downgrade implements backend.Downgrader by one packet. The row of the holder moves, in one
// transaction, from that of the lock to one of its own.
func (g *grant) Downgrade(ctx context.Context) error {
	if g.currentMode() == shared {
		return nil
	}
	v := values{req: g.req, share: sharePlace(g.token)}
	g.setMode(either)
	var held, handedOver, waiters bool
	var present string
	_, err := run(ctx, g.b, g.b.poolConn, func(ctx context.Context, c *sql.Conn) (none struct{}, err error) {
		return none, g.b.queryOne(ctx, c, g.b.downgradePacket(v), &held, &present, &handedOver, &waiters)
	})
	switch {
	case err != nil:
		g.downgradeUnknown = g.downgradeUnknown || backend.OutcomeUnknown(err)
		return err
	case held:
		g.setMode(shared)
		if waiters { // they wait beside a shared holder now, see deadline.go
			g.b.notifier.pulseName(g.req.Owner)
		}
		if handedOver {
			g.b.watchHandOver(g.req.Key)
			g.b.lookAgain(g.req.Key)
		}
		return nil
	case present != "":
		if !g.downgradeUnknown {
			g.setMode(exclusive)
		}
		return backend.NotExecuted(backend.CapacityError(backend.Reader, parsePresent(present)))
	}
	return g.lost()
}

func (g *grant) lost() error {
	return fmt.Errorf("%w: row %.200q of table %s has another owner or has expired", backend.ErrLost, g.b.key(g.req.Key), g.b.table)
}
