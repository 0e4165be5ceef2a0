package pglock

import (
	"cmp"
	"context"
	"encoding/hex"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

const sweepPause = 10 * time.Millisecond // between two statements of a sweep

// sweepUnused notes that this version of the functions is used, and removes unused rows and versions, until Close. Of all
// clients one sweeps four times within the retention: each asks whether it is to be it, at times of its own.
func (s *service) sweepUnused() {
	ctx := s.life.Context()
	interval := cmp.Or(s.opt.retention, backend.DefaultRetention) / 4
	for {
		call.Sleep(ctx, interval/2+rand.N(interval/2))
		if ctx.Err() != nil {
			return
		}
		_, _ = s.exec(ctx, s.sql.used, s.sql.version) // the next one notes it
		if s.opt.retention == 0 {
			continue
		}
		if n, err := s.exec(ctx, s.sql.turn, micro(interval)); err == nil && n > 0 {
			_, _ = s.sweep(ctx, s.opt.retention)
			_ = s.dropVersions(ctx, max(s.opt.retention, backend.DefaultRetention))
		}
	}
}

// Sweep removes the rows of locks without a holder and without waiters that were not used
// for that long, and returns their number, also with an error. Clients do so by themselves,
// see WithRetention. Tokens still rise: the greatest token of the removed rows stays. The
// minimum is one minute. Sweep needs DELETE on the tables. It looks at 1,000 locks in a
// statement, and waits for no row.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < backend.MinRetention {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	return b.svc.sweep(ctx, unused)
}

func (s *service) sweep(ctx context.Context, unused time.Duration) (removed int, err error) {
	type page struct {
		removed int
		last    string
	}
	name := []byte{}
	for {
		pages, _, err := query(ctx, s.server, func(r pgx.CollectableRow) (p page, err error) {
			err = r.Scan(&p.removed, &p.last)
			return p, err
		}, s.sql.sweep, micro(unused), name)
		if err != nil || len(pages) == 0 {
			return removed, err
		}
		removed += pages[0].removed
		if name, err = hex.DecodeString(pages[0].last); err != nil {
			return removed, err
		}
		call.Sleep(ctx, sweepPause)
	}
}
