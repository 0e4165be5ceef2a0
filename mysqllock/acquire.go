package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
)

const maxSettled = 1 << 16

var errQueueFull = errors.New("mysql: too many wait for this lock")

// attempt is one call of TryAcquire or Acquire.
type attempt struct {
	b   *Backend
	req backend.Request
	// dirty: some request to acquire had no answer, so it may be executed later
	dirty bool
}

// TryAcquire makes one attempt.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	a := &attempt{b: b, req: req}
	s, err := a.ask(ctx, false)
	if err != nil {
		return nil, err
	}
	if !s.mine(req.Owner) {
		return nil, lockedError(s)
	}
	return a.grant(s), nil
}

// ask is one request to acquire.
func (a *attempt) ask(ctx context.Context, join bool) (state, error) {
	s, err := a.b.ask(ctx, a.req, join)
	switch {
	case err != nil:
		a.dirty = a.dirty || errors.Is(err, backend.ErrUncertain)
	case s.gone:
		err = fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	}
	return s, err
}

func (a *attempt) grant(s state) *grant {
	return &grant{b: a.b, req: a.req, token: s.token, dirty: a.dirty, until: s.sent.Add(min(s.left(), a.req.TTL))}
}

// Acquire takes the key, waiting in the queue for its turn.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	a := &attempt{b: b, req: req}
	g, err := a.wait(ctx)
	if errors.Is(err, backend.ErrUncertain) && !a.dirty {
		b.settle(req.Owner)
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// wait asks, queues, and looks again and again until it is its turn.
func (a *attempt) wait(ctx context.Context) (*grant, error) {
	b, req := a.b, a.req
	var (
		queued  bool
		misses  int       // in a row, of an attempt that is not in the queue
		failing time.Time // since when the service does not answer
		pause   pace
	)
	pause.most = min(250*time.Millisecond, max(req.TTL/8, 10*time.Millisecond))
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	li := b.bell.listen(req.Key, req.Owner, pause.most)
	defer b.bell.leave(li)
	var news chan state
	if li != nil {
		news = li.news
	}
	asking := true
	var told *state
	for {
		var s state
		var err error
		if told != nil {
			s, told = *told, nil
		} else if asking {
			s, err = a.within(ctx, queued, func(ctx context.Context) (state, error) { return a.ask(ctx, true) })
		} else {
			s, err = a.within(ctx, queued, func(ctx context.Context) (state, error) { return b.read(ctx, req) })
		}
		var next time.Duration
		followed := false
		switch {
		case s.lost:
			asking = false
			continue
		case err != nil:
			if failing.IsZero() {
				failing = time.Now()
			}
			end := ctx.Err()
			switch {
			case end != nil:
				return nil, a.gaveUp(end, queued)
			case !queued && (!takenBack(err) || time.Since(failing) >= req.TTL):
				return nil, err // what is taken back goes on: the server answers, others came first
			case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrClosed), time.Since(failing) >= req.TTL:
				return nil, backend.Uncertain(err)
			}
			next = pause.failed() // ride it out
		case s.mine(req.Owner):
			g := a.grant(s)
			if s.left() >= min(req.TTL, claim)/2 {
				return g, nil
			}
			// It took long to notice: what is left of the claim may not last.
			if err := g.Renew(ctx, req.TTL); err == nil {
				return g, nil
			}
			failing, asking, next = time.Time{}, true, pause.failed()
		case s.place == 0 && asking:
			// the queue is full, or the turn came and went between the two statements
			if misses++; misses == 5 {
				return nil, errQueueFull
			}
			failing, next = time.Time{}, pause.failed()
		case s.place == 0:
			failing, asking = time.Time{}, true // the turn was missed, or the row is gone
			continue
		default:
			failing, misses = time.Time{}, 0
			if !queued && req.OnWait != nil {
				req.OnWait(lockedError(s))
			}
			queued = true
			next, asking = pause.next(s)
			followed = b.bell.follow(li, s) && s.held() // else it is to be asked for
			asking = asking && !followed
		}
		if followed {
			timer.Stop()
		} else {
			timer.Reset(next)
		}
		select {
		case <-timer.C:
		case s := <-news:
			told = &s
		case <-ctx.Done():
			return nil, a.gaveUp(ctx.Err(), queued)
		case <-b.life.Done():
			return nil, a.gaveUp(backend.ErrClosed, queued)
		}
	}
}

// within bounds a request of an attempt in the queue by how long the service may
// fail.
func (a *attempt) within(ctx context.Context, queued bool, f func(context.Context) (state, error)) (state, error) {
	if !queued {
		return f(ctx)
	}
	limit := max(a.req.TTL, 100*time.Millisecond)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := f(within)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		err = backend.Uncertain(fmt.Errorf("mysql: no answer within %v", limit)) // not the caller's deadline
		a.dirty = true
	}
	return s, err
}

// gaveUp is the error of an attempt that was ended from outside.
func (a *attempt) gaveUp(err error, queued bool) error {
	if !queued && !a.dirty {
		return err // nothing of it remains
	}
	return backend.Uncertain(err)
}

// pace is how often a waiter looks.
type pace struct {
	most, last time.Duration
	place      int
}

const soonest = 10 * time.Millisecond

// next is the time until the next look, and whether it is to be a request. While
// the queue moves a waiter looks often, then ever more rarely. When the holder's
// lease ends the first in the queue asks at once; the others leave it a while.
func (p *pace) next(s state) (d time.Duration, ask bool) {
	if s.place != p.place {
		p.last, p.place = 0, s.place
	}
	p.last = min(p.last*3/2+soonest, p.most)
	d = p.last/2 + rand.N(p.last/2+1)
	left := s.left() + time.Millisecond
	if s.place != 1 {
		left += 200 * time.Millisecond
	}
	if left <= d {
		return max(left, 0), true
	}
	return d, false
}

func (p *pace) failed() time.Duration {
	p.last = min(p.last*3/2+soonest, p.most)
	return p.last/2 + rand.N(p.last/2+1)
}

// settle remembers that no request of an attempt is on its way.
func (b *Backend) settle(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.settled) >= maxSettled {
		clear(b.settled) // harmless: those forgotten get a tombstone
	}
	b.settled[owner] = struct{}{}
}

// Abandon makes sure that nothing remains of an attempt. A tombstone refuses its
// requests that arrive later, unless each of them is known to have had its answer.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	if err := checkOwner(req.Owner); err != nil {
		return err
	}
	b.mu.Lock()
	_, settled := b.settled[req.Owner]
	b.mu.Unlock()
	_, err := b.giveUp(ctx, req.Owner, b.abandon(req, !settled))
	if err == nil {
		b.mu.Lock()
		delete(b.settled, req.Owner)
		b.mu.Unlock()
	}
	return err
}

// lockedError describes the holder of a refusal.
func lockedError(s state) *backend.LockedError {
	return &backend.LockedError{Holder: holder(s.owner, s.metadata, s.token, s.left())}
}

func holder(owner, metadata string, token uint64, left time.Duration) backend.Holder {
	return backend.Holder{
		Party: backend.Party{Owner: owner, Metadata: unescaper.Replace(metadata)},
		Token: token, Left: max(left, 0),
	}
}
