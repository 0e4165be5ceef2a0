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

// RenewBatch renews by one statement, and each grant that it did not find by a statement of its
// own. Those have an eighth of the smallest TTL, after which their outcome is unknown: a row that
// is locked for long must not delay the results of the others.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	errs := make([]error, len(renewals))
	minTTL := time.Hour
	for i, r := range renewals {
		errs[i], minTTL = errNotFound, min(minTTL, r.TTL)
	}
	b.renewMany(ctx, renewals, errs)
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

// renewMany renews grants by one statement. A batch that the server rolls back is divided: with
// fewer rows it conflicts less often.
func (b *Backend) renewMany(ctx context.Context, all []backend.Renewal, errs []error) {
	if len(all) < 2 {
		return
	}
	names, owners := make([][]byte, len(all)), make([]string, len(all))
	ttls, tokens := make([]int64, len(all)), make([]int64, len(all))
	for i, r := range all {
		g := r.Grant.(*grant)
		names[i], owners[i], ttls[i] = g.a.key, g.a.req.Owner, micro(r.TTL)
		if shared, _ := g.isShared(); shared {
			tokens[i] = int64(g.token)
		}
	}
	found, sent, err := query(ctx, b, noRetry, func(r pgx.CollectableRow) (n int, err error) {
		err = r.Scan(&n, nil)
		return n - 1, err
	}, do(b.sql.renewMany, names, owners, ttls, tokens))
	if rolledBack(err) {
		half := len(all) / 2
		b.renewMany(ctx, all[:half], errs[:half])
		b.renewMany(ctx, all[half:], errs[half:])
		return
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	for _, n := range found {
		r := all[n]
		r.Grant.(*grant).renewed(sent, r.TTL)
		errs[n] = nil
	}
}
