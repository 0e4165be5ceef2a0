package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// joint is what a lease of several leases is a lease of. It has no timers and keeps
// nothing alive: each part does that for itself.
type joint struct {
	label  string
	leases []*Lease // in the order in which they were taken

	mu    sync.Mutex
	ended error
}

// newJoint makes one lease of several.
func newJoint(values context.Context, name string, leases []*Lease) *Lease {
	j := &joint{label: name, leases: leases}
	l := newLease(values, j)
	for _, p := range leases {
		context.AfterFunc(p.Context(), func() { _ = j.endOf(l) }) // each part ends, with the whole at the latest
	}
	return l
}

// endOf returns why the lease has ended, or nil. It looks at each part, which may
// find its trust over and tell that to observers, so without the mutex.
func (j *joint) endOf(l *Lease) error {
	if err := j.end(); err != nil {
		return err
	}
	if err := firstEnd(j.leases); err != nil {
		return j.finish(l, err)
	}
	return nil
}

func (j *joint) end() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}

// finish ends the lease, once, and returns why it has ended.
func (j *joint) finish(l *Lease, why error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended == nil {
		j.ended = why
		l.cancel(why)
	}
	return j.ended
}

func (j *joint) name() string  { return j.label }
func (j *joint) owner() string { return "" }
func (j *joint) token() uint64 { return 0 }

func (j *joint) atBackend() BackendHold { return BackendHold{} }

func (j *joint) parts(*Lease) []*Lease {
	var out []*Lease
	for _, p := range j.leases {
		out = append(out, p.Parts()...)
	}
	return out
}

// expiresAt is the earliest end of a part that has one.
func (j *joint) expiresAt() time.Time {
	var least time.Time
	for _, p := range j.leases {
		if e := p.Expires(); !e.IsZero() && (least.IsZero() || e.Before(least)) {
			least = e
		}
	}
	return least
}

func (j *joint) renewFor(ctx context.Context, l *Lease, op string, ttl time.Duration) error {
	for _, p := range j.leases {
		if err := j.endOf(l); err != nil {
			return err
		}
		if err := p.of.renewFor(ctx, p, op, ttl); err != nil {
			if end := j.endOf(l); end != nil {
				return end
			}
			return err
		}
	}
	return j.endOf(l)
}

// unlock ends the lease, then its parts.
func (j *joint) unlock(ctx context.Context, l *Lease) error {
	_ = j.endOf(l) // a loss that nobody has looked at yet stays one
	_ = j.finish(l, jointError("hold", j.label, ErrReleased))
	if err := unlockEach(ctx, j.leases); err != nil {
		return jointError("unlock", j.label, err)
	}
	return nil
}

func (j *joint) find(k holdKey) *hold {
	for _, p := range j.leases {
		if h := p.of.find(k); h != nil {
			return h
		}
	}
	return nil
}

func (j *joint) keepFrom(t time.Time) {
	for _, p := range j.leases {
		p.keepFrom(t)
	}
}

// unlockTurn is how long the release of one part waits for that of the part before.
const unlockTurn = 100 * time.Millisecond

// unlockEach frees leases, last first, and all of them whatever comes of one. One
// whose backend does not answer holds up the others for a moment only, so that the
// whole is bounded as one Unlock is.
func unlockEach(ctx context.Context, ls []*Lease) error {
	var all sync.WaitGroup
	errs := make([]error, len(ls))
	for i, l := range slices.Backward(ls) {
		freed := make(chan struct{})
		all.Go(func() {
			defer close(freed)
			errs[i] = l.Unlock(ctx)
		})
		turn := time.NewTimer(unlockTurn)
		select {
		case <-freed:
		case <-turn.C:
		}
		turn.Stop()
	}
	all.Wait()
	var err error
	for _, e := range errs {
		switch {
		case e == nil:
		case err == nil:
			err = e
		case errors.Is(err, ErrLost) && errors.Is(e, ErrLost): // one is enough to know
		default:
			err = fmt.Errorf("%w; %w", err, e)
		}
	}
	return err
}
