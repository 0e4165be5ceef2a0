package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

const wrongCapacity = -2 // status of a reply; shared contenders with another capacity hold the key or wait

// askShare sends one request for a share, as ask does. A request locks the row of the lock. After a push
// a renewal, which does not, returns the slots. A poll looks first, without that lock, whether the attempt
// still waits. The look also asks the process of the first waiter, if that waiter does not fit beside the
// holders, whether it is alive. If the process does not answer in time, its waiters are removed.
func (a *attempt) askShare(ctx context.Context, queue bool, retryFor time.Duration) (r reply, err error) {
	b, share, found, capacity := a.b, a.req.Share, false, 0
	scan := func(row pgx.CollectableRow) (none struct{}, err error) {
		var owner, metadata, slots string
		var left, token, next, check int64
		err = row.Scan(&r.status, &r.serverTime, &left, &token, &owner, &metadata, &r.ahead, &r.entered, &slots, &capacity, &next, &check, nil, nil)
		found, r.holder, r.slots, r.next = true, holder(owner, metadata, token, left), slotsOf(slots), micros64(next)
		r.check = micros64(check)
		return none, err
	}
	a.shares = true
	ask := func(passed bool) call {
		return do(b.sql.share, a.key, a.req.Owner, a.processAndHash(), escape(a.req.Metadata), micro(a.req.TTL), queue, int64(share.Weight), int64(share.Capacity), passed)
	}
	request := func(step int, kind string) []call {
		switch {
		case step == 0 && a.peek:
			return []call{do(b.sql.peek, a.key, a.req.Owner, b.process)}
		case step == 0:
			return []call{do(b.sql.renewShare, a.key, a.req.Owner, micro(a.req.TTL))}
		case step == 1:
			return []call{do(b.sql.ensure, a.key), ask(false)}
		}
		return []call{do(b.sql.ensure, a.key), a.pass(kind), ask(true)}
	}
	step := 1
	if a.peek || a.claim {
		step = 0
	}
	for kind := "pass"; ; step = min(step+1, 2) {
		_, r.sent, err = query(ctx, b, retryFor, scan, request(step, kind)...)
		switch {
		case err != nil:
			a.unanswered = a.unanswered || step > 0 && backend.OutcomeUnknown(err)
			a.passUnknown = a.passUnknown || step > 1 && backend.OutcomeUnknown(err)
			return r, err
		case !found || r.status == again:
			kind = "pass"
		case r.status == overdue:
			kind, step = "overdue", 1
		case r.status == abandoned:
			return r, fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
		case r.status == wrongCapacity:
			return r, backend.CapacityError(share, backend.Share{Weight: 1, Capacity: capacity})
		default:
			if a.peek && step == 2 {
				r.check = min(r.check, 0) // only a look asks the first waiter, which may be another one now
			}
			return r, nil
		}
	}
}
