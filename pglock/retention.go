package pglock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

const sweepPause = 10 * time.Millisecond // between two statements of a sweep

// sweepUnused removes unused rows, until Close. Of all clients one sweeps four times within
// the retention: each asks whether it is to be it, at times of its own.
func (b *Backend) sweepUnused() {
	interval := b.opt.retention / 4
	for {
		sleep(b.ctx, interval/2+rand.N(interval/2))
		if b.ctx.Err() != nil {
			return
		}
		if _, n, err := b.exec(b.ctx, do(b.sql.turn, micro(interval))); err == nil && n > 0 {
			_, _ = b.Sweep(b.ctx, b.opt.retention)
		}
	}
}

// Sweep removes the rows of locks without a holder and without waiters that were not used
// for that long, and returns their number, also with an error. Clients do so by themselves,
// see WithRetention. Tokens still rise: the greatest token of the removed rows stays. The
// minimum is one minute. Sweep needs DELETE on the table. It looks at 1,000 rows in a
// statement, and waits for no row.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < backend.MinRetention {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	removed, name, place := 0, []byte{}, int64(0)
	for {
		pages, _, err := query(ctx, b, 0, func(r pgx.CollectableRow) (n int, err error) {
			err = r.Scan(&n, &name, &place, nil)
			return n, err
		}, do(b.sql.sweep, micro(unused), name, place))
		if err != nil || len(pages) == 0 {
			return removed, err
		}
		removed += pages[0]
		sleep(ctx, sweepPause)
	}
}
