package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

const wrongCapacity = -2 // status of a reply; shared contenders with another capacity hold the key or wait

// askShare sends one request for a share, as ask does. A request locks the row of the lock. A poll
// looks first, without that, whether the attempt still waits.
func (a *attempt) askShare(ctx context.Context, queue bool, retryFor time.Duration) (r reply, err error) {
	b, share, found, capacity := a.b, a.req.Share, false, 0
	scan := func(row pgx.CollectableRow) (none struct{}, err error) {
		var owner, metadata, slots string
		var left, token, next int64
		err = row.Scan(&r.status, &r.serverTime, &left, &token, &owner, &metadata, &r.ahead, &r.entered, &slots, &capacity, &next, nil)
		found, r.holder, r.slots, r.next = true, holder(owner, metadata, token, left), slotsOf(slots), micros64(next)
		return none, err
	}
	a.shares = true
	ask := func(passed bool) call {
		return do(b.sql.share, a.key, a.req.Owner, a.processAndHash(), escape(a.req.Metadata), micro(a.req.TTL), queue, int64(share.Weight), int64(share.Capacity), passed)
	}
	all := [][]call{
		{do(b.sql.peek, a.key, a.req.Owner)},
		{do(b.sql.ensure, a.key), ask(false)},
		{do(b.sql.ensure, a.key), a.pass(), ask(true)},
	}
	step := 1
	if a.peek {
		step = 0
	}
	for ; ; step = min(step+1, 2) {
		_, r.sent, err = query(ctx, b, retryFor, scan, all[step]...)
		switch {
		case err != nil:
			a.unanswered = a.unanswered || step > 0 && backend.OutcomeUnknown(err)
			return r, err
		case !found || r.status == again:
		case r.status == abandoned:
			return r, fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
		case r.status == wrongCapacity:
			return r, backend.CapacityError(share, backend.Share{Weight: 1, Capacity: capacity})
		default:
			return r, nil
		}
	}
}
