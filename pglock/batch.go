package pglock

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// renewal is one of a batch, and where its error goes.
type renewal struct {
	g   *grant
	ttl time.Duration
	err *error
}

// RenewBatch renews by one statement. What that did not find, because it is lost or
// because somebody has locked the row, is renewed each for itself, which tells.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	errs := make([]error, len(renewals))
	all := make([]renewal, len(renewals))
	for i, r := range renewals {
		all[i] = renewal{r.Grant.(*grant), r.TTL, &errs[i]}
	}
	alone := b.renewMany(ctx, all)
	soon, cancel := context.WithTimeout(ctx, aloneFor(renewals))
	defer cancel()
	var wg sync.WaitGroup
	at := make(chan struct{}, max(1, b.pool.Stat().MaxConns()/2))
	for _, r := range alone {
		at <- struct{}{}
		wg.Go(func() {
			*r.err = r.g.Renew(soon, r.ttl)
			<-at
		})
	}
	wg.Wait()
	return errs
}

// aloneFor is how long the others, whose answer is there already, wait for those that
// are renewed each for itself: a row may be locked for long. What has no answer by then
// is uncertain, and the core asks again.
func aloneFor(renewals []backend.Renewal) time.Duration {
	least := time.Hour
	for _, r := range renewals {
		least = min(least, r.TTL)
	}
	return least / 8
}

// renewMany returns those that are left to be renewed each for itself.
func (b *Backend) renewMany(ctx context.Context, all []renewal) (alone []renewal) {
	if len(all) < 2 {
		return all
	}
	names, owners, ttls := make([][]byte, len(all)), make([]string, len(all)), make([]int64, len(all))
	for i, r := range all {
		names[i], owners[i], ttls[i] = r.g.a.key, r.g.a.req.Owner, micro(r.ttl)
	}
	did := make([]bool, len(all))
	sent, err := b.queryFor(ctx, noPatience, nil, func(rows pgx.Rows) error {
		var n int
		err := rows.Scan(&n, nil)
		if err == nil {
			did[n-1] = true
		}
		return err
	}, b.sql.renewMany, names, owners, ttls)
	if conflict(err) {
		// any of many rows may have been overtaken, each time: fewer are more seldom
		half := len(all) / 2
		return append(b.renewMany(ctx, all[:half:half]), b.renewMany(ctx, all[half:])...)
	}
	for i, r := range all {
		switch {
		case err != nil:
			*r.err = err
		case did[i]:
			r.g.renewed(sent, r.ttl)
		default:
			alone = append(alone, r)
		}
	}
	return alone
}
