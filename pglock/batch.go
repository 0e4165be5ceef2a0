package pglock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// errNotFound is for a renewal of a batch whose row is not of the grant any more, or is
// locked by another transaction.
var errNotFound = errors.New("not renewed by the batch")

// RenewBatch renews by one statement, those of shared holders by another one, and each grant
// that it did not find by a statement of its own. Those have an eighth of the smallest TTL, after which their outcome
// is unknown: a row that is locked for long must not delay the results of the others.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	errs := make([]error, len(renewals))
	minTTL := time.Hour
	var exclusive, shared []int
	for i, r := range renewals {
		errs[i], minTTL = errNotFound, min(minTTL, r.TTL)
		if is, _ := r.Grant.(*grant).isShared(); is {
			shared = append(shared, i)
		} else {
			exclusive = append(exclusive, i)
		}
	}
	b.renewMany(ctx, b.sql.renewMany, renewals, exclusive, errs)
	b.renewMany(ctx, b.sql.renewShares, renewals, shared, errs)
	soon, cancel := context.WithTimeout(ctx, minTTL/8)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, b.pool.Stat().MaxConns()/2))
	for i, r := range renewals {
		if errs[i] != errNotFound { //nolint:errorlint // set above, and not wrapped
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = r.Grant.Renew(soon, r.TTL)
			<-slots
		})
	}
	wg.Wait()
	return errs
}

// renewMany renews the grants of which by one statement. A batch that the server rolls back is
// divided: with fewer rows it conflicts less often.
func (b *Backend) renewMany(ctx context.Context, sql string, all []backend.Renewal, which []int, errs []error) {
	if len(which) < 2 {
		return
	}
	names, owners, ttls := make([][]byte, len(which)), make([]string, len(which)), make([]int64, len(which))
	for n, i := range which {
		a := all[i].Grant.(*grant).a
		names[n], owners[n], ttls[n] = a.key, a.req.Owner, micro(all[i].TTL)
	}
	found, sent, err := query(ctx, b, noRetry, func(r pgx.CollectableRow) (n int, err error) {
		err = r.Scan(&n, nil)
		return n - 1, err
	}, do(sql, names, owners, ttls))
	if rolledBack(err) {
		half := len(which) / 2
		b.renewMany(ctx, sql, all, which[:half], errs)
		b.renewMany(ctx, sql, all, which[half:], errs)
		return
	}
	if err != nil {
		for _, i := range which {
			errs[i] = err
		}
	}
	for _, n := range found {
		r := all[which[n]]
		r.Grant.(*grant).renewed(sent, r.TTL)
		errs[which[n]] = nil
	}
}
