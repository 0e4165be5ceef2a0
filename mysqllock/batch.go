package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// renewal is one of a batch.
type renewal struct {
	g   *grant
	ttl time.Duration
	err *error // where its error goes
}

const maxBatch = 256 // grants of a statement: for many more rows the server would read the whole table

// RenewBatch renews by one statement for up to 256 grants. Grants whose rows that does not
// find, because they are lost or another transaction has locked the row, it renews one by
// one, for at most an eighth of the least TTL.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	errs := make([]error, len(renewals))
	all := make([]renewal, len(renewals))
	least := time.Hour
	for i, r := range renewals {
		all[i] = renewal{r.Grant.(*grant), r.TTL, &errs[i]}
		least = min(least, r.TTL)
	}
	var rest []renewal
	for part := range slices.Chunk(all, maxBatch) {
		rest = append(rest, b.renewMany(ctx, part)...)
		if errors.Is(errs[0], errors.ErrUnsupported) {
			return slices.Repeat(errs[:1], len(errs))
		}
	}
	// A row may be locked for long, and the renewals that are answered wait for all others.
	bounded, cancel := context.WithTimeout(ctx, least/8)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, cap(b.acquiring)/2))
	for _, r := range rest {
		slots <- struct{}{}
		wg.Go(func() {
			*r.err = r.g.Renew(bounded, r.ttl)
			<-slots
		})
	}
	wg.Wait()
	return errs
}

// renewMany returns the renewals that remain to be sent one by one. The server does not say
// which rows it found; if it found almost all, renewMany sends each half again, since to
// renew twice is harmless.
func (b *Backend) renewMany(ctx context.Context, all []renewal) (rest []renewal) {
	if len(all) < 2 {
		return all
	}
	q, sent := b.renewAll(all), time.Now()
	const rolled = -1
	n, err := run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (int64, error) {
		n, err := changedRows(ctx, c, q)
		if rolledBack(err) {
			return rolled, nil // run would send it again: half as many are rolled back less often
		}
		return n, classify(err)
	})
	if err != nil {
		switch number(err) {
		case errLockWait:
			return all // the server waits in spite of SKIP LOCKED
		case errSyntax:
			err = fmt.Errorf("%w: a server without SKIP LOCKED: %w", errors.ErrUnsupported, err)
		}
		for _, r := range all {
			*r.err = err
		}
		return nil
	}
	missing := len(all) - int(n)
	switch half := len(all) / 2; {
	case missing == 0:
		for _, r := range all {
			r.g.renewed(sent, r.ttl)
		}
		return nil
	case n == rolled || missing <= len(all)/8:
		return append(b.renewMany(ctx, all[:half:half]), b.renewMany(ctx, all[half:])...)
	}
	return all
}

// renewAll is renew of each row that no other transaction has locked. It waits for no row,
// so no row delays the others, and it cannot deadlock. LIMIT keeps MySQL from merging the
// two queries into one that would wait.
func (b *Backend) renewAll(all []renewal) string {
	var in []string
	var ttl strings.Builder
	ttl.WriteString("CASE l.owner")
	for _, r := range all {
		owner := lit(r.g.req.Owner)
		for at := range strings.SplitSeq(r.g.at(), ",") { // at most one row has the owner: a downgrade is one transaction
			in = append(in, fmt.Sprintf("(%s,%s,%s)", lit(b.key(r.g.req.Key)), at, owner))
		}
		fmt.Fprintf(&ttl, " WHEN %s THEN %d", owner, millis(r.ttl)*1000)
	}
	ttl.WriteString(" END")
	return fmt.Sprintf("UPDATE (SELECT name AS mine,place AS at FROM %[1]s FORCE INDEX (PRIMARY) WHERE (name,place,owner) IN (%[2]s) AND expires>%[3]s LIMIT %[4]d FOR UPDATE SKIP LOCKED) m"+
		" STRAIGHT_JOIN %[1]s l ON l.name=mine AND l.place=at SET l.unclaimed=0,l.expires=GREATEST(l.expires+1,%[3]s+%[5]s)",
		b.table.quoted(), strings.Join(in, ","), nowFragment, len(all), ttl.String())
}
