package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	sweepPage  = 1000 // rows that one statement reads
	sweepBatch = 100  // rows that one statement deletes
)

// Sweep deletes the rows of locks without a holder and without waiters that were not used
// for that long, and returns their number, also with an error. Without Sweep each name that
// was ever used keeps its row. Tokens still rise, because the first token of a new row is the
// server's clock, unless that clock is set back by as much. The minimum is one minute. Sweep
// needs DELETE on the table. It locks no row that it does not delete.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < time.Minute {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	before := fmt.Sprintf("%s-%d", now, unused.Microseconds())
	condition := fmt.Sprintf("GREATEST(expires,granted)<%[1]s AND token<%[1]s AND gone_until<%[2]s AND CASE WHEN queue='' THEN TRUE ELSE %[3]s END", before, now, deadQueue)
	deleted, after := 0, ""
	for {
		last, found, err := b.sweepable(ctx, after, condition)
		if err != nil {
			return deleted, err
		}
		for names := range slices.Chunk(found, sweepBatch) {
			// By primary key: a statement that reads the whole table would lock all of it.
			n, err := b.exec(ctx, fmt.Sprintf("DELETE l FROM %s l FORCE INDEX (PRIMARY) WHERE name IN (%s) AND %s",
				b.table.quoted(), strings.Join(names, ","), condition))
			if err != nil {
				return deleted, err
			}
			deleted += int(n)
		}
		if last == "" {
			return deleted, nil
		}
		after = last
	}
}

// sweepable reads a page of rows without a lock. It returns the last name, or "" if there is
// none, and the names that meet the condition, as literals.
func (b *Backend) sweepable(ctx context.Context, after, condition string) (last string, found []string, err error) {
	q := fmt.Sprintf("SELECT name,%s FROM %s WHERE name>%s ORDER BY name LIMIT %d", condition, b.table.quoted(), lit(after), sweepPage) //nolint:gosec // constants and the quoted table
	_, err = run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (none struct{}, err error) {
		last, found = "", nil
		rows, err := c.QueryContext(ctx, q)
		if err != nil {
			return none, failure(err)
		}
		defer rows.Close()
		for rows.Next() {
			var meets bool
			if err := rows.Scan(&last, &meets); err != nil {
				return none, failure(err)
			}
			if meets {
				found = append(found, lit(last))
			}
		}
		return none, failure(rows.Err())
	})
	return last, found, err
}
