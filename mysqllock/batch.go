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

// renewal is one of a batch, and where its error goes.
type renewal struct {
	g   *grant
	ttl time.Duration
	err *error
}

const maxBatch = 256 // rows of a statement: of many more the server would read the whole table

// RenewBatch renews by one statement. What that did not find, because it is lost or
// because somebody has locked the row, is renewed each for itself, which tells.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	errs := make([]error, len(renewals))
	all := make([]renewal, len(renewals))
	for i, r := range renewals {
		all[i] = renewal{r.Grant.(*grant), r.TTL, &errs[i]}
	}
	var alone []renewal
	for some := range slices.Chunk(all, maxBatch) {
		alone = append(alone, b.renewMany(ctx, some)...)
		if errors.Is(errs[0], errors.ErrUnsupported) {
			return slices.Repeat(errs[:1], len(errs))
		}
	}
	soon, cancel := context.WithTimeout(ctx, aloneFor(renewals))
	defer cancel()
	var wg sync.WaitGroup
	at := make(chan struct{}, cap(b.looking)) // half of the pool
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

// renewMany returns those that are left to be renewed each for itself. The server does
// not say which rows it found. If almost all, the two halves are asked for again, as it
// does no harm to renew twice.
func (b *Backend) renewMany(ctx context.Context, all []renewal) (alone []renewal) {
	if len(all) < 2 {
		return all
	}
	var n int64
	var back bool
	sent, q := time.Now(), b.renewAll(all)
	err := b.run(ctx, func(ctx context.Context, c *sql.Conn) error {
		r, err := c.ExecContext(ctx, q)
		if back = takenBack(err); back {
			return nil // not to be sent again as it is: fewer are taken back more seldom
		}
		if err == nil {
			n, err = r.RowsAffected()
		}
		return classify(err)
	})
	if err != nil { // n and back may still be written to
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
	case back || missing <= len(all)/8:
		return append(b.renewMany(ctx, all[:half:half]), b.renewMany(ctx, all[half:])...)
	}
	return all
}

// renewAll is renew of each row that nobody else has locked: it waits for no row, so
// one cannot hold up the others, and there is no deadlock however many rows it locks.
// LIMIT keeps MySQL from making one query of the two, which would wait.
func (b *Backend) renewAll(all []renewal) string {
	var in, ttl strings.Builder
	ttl.WriteString("CASE l.owner")
	for i, r := range all {
		if i > 0 {
			in.WriteByte(',')
		}
		owner := lit(r.g.req.Owner)
		fmt.Fprintf(&in, "(%s,%s)", lit(b.key(r.g.req.Key)), owner)
		fmt.Fprintf(&ttl, " WHEN %s THEN %d", owner, millis(r.ttl)*1000)
	}
	ttl.WriteString(" END")
	return fmt.Sprintf("UPDATE (SELECT name AS mine FROM %[1]s FORCE INDEX (PRIMARY) WHERE (name,owner) IN (%[2]s) AND expires>%[3]s LIMIT %[4]d FOR UPDATE SKIP LOCKED) m"+
		" STRAIGHT_JOIN %[1]s l ON l.name=mine SET l.expires=GREATEST(l.expires+1,%[3]s+%[5]s)",
		b.table.quoted(), in.String(), now, len(all), ttl.String())
}
