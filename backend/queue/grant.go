package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

var (
	_ backend.Grant      = (*attempt)(nil)
	_ backend.Keeper     = (*attempt)(nil)
	_ backend.Downgrader = (*attempt)(nil)
	_ backend.SlotHolder = (*attempt)(nil)
)

// Token implements backend.Grant.
func (a *attempt) Token() uint64 { return a.token }

// Slots implements backend.SlotHolder.
func (a *attempt) Slots() []int { return slices.Clone(a.slots) }

// Until implements backend.Grant.
func (a *attempt) Until() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until
}

// Renew implements backend.Grant.
func (a *attempt) Renew(ctx context.Context, ttl time.Duration) error {
	return a.extend(ctx, ttl, false)
}

// Keep implements backend.Keeper.
func (a *attempt) Keep(ctx context.Context, d time.Duration) error { return a.extend(ctx, d, true) }

func (a *attempt) renewal(ttl time.Duration, exactly bool) Hold {
	return Hold{Key: a.req.Key, Owner: a.req.Owner, Share: a.req.Share, TTL: ttl, Exactly: exactly}
}

func (a *attempt) extend(ctx context.Context, ttl time.Duration, exactly bool) error {
	return a.renewed(a.b.svc.Renew(ctx, []Hold{a.renewal(ttl, exactly)})[0], ttl)
}

// renewed handles an answer. One that arrives after that of a later request does not move until.
func (a *attempt) renewed(r Renewed, ttl time.Duration) error {
	a.b.PassIn(a.req.Key, r.Pass)
	if errors.Is(r.Err, backend.ErrLost) {
		a.lost()
	}
	if r.Err != nil {
		return r.Err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !r.Sent.Before(a.sent) {
		a.sent, a.until = r.Sent, r.Sent.Add(ttl)
	}
	return nil
}

// Release implements backend.Grant. The attempt stays known until the answer: a grant that is pushed late is its own.
func (a *attempt) Release(ctx context.Context) error {
	r := a.b.finish(ctx, End{Request: a.req, Kind: Release, Late: a.unanswered.Load()})[0]
	a.b.unregister(a)
	if r.Err == nil && !r.Held {
		return a.lostError()
	}
	return r.Err
}

// Downgrade implements backend.Downgrader.
func (a *attempt) Downgrade(ctx context.Context) error {
	r := a.b.finish(ctx, End{Request: a.req, Kind: Downgrade})[0]
	if r.Err == nil && !r.Held {
		a.lost()
		return a.lostError()
	}
	return r.Err
}

func (a *attempt) lostError() error {
	return fmt.Errorf("%w: key %.200q is not held by this attempt any more", backend.ErrLost, a.req.Key)
}
