package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	sweepPage  = 1000 // rows that one statement reads
	sweepBatch = 100  // locks that one transaction deletes
	sweepPause = 10 * time.Millisecond
)

// sweepUnused deletes unused rows, until Close. Of all clients one sweeps four times within the
// retention: each asks whether it is to be it, at times of its own.
func (b *Backend) sweepUnused() {
	interval := b.opt.retention / 4
	turn := b.sql(fmt.Sprintf("UPDATE {table} SET granted={now} WHERE name='' AND place=0 AND granted<{now}-%d", interval.Microseconds()), values{})
	for sleep(b.life, interval/2+rand.N(interval/2)) {
		if n, err := b.exec(b.life, turn); err == nil && n > 0 {
			_, _ = b.Sweep(b.life, b.opt.retention)
		}
	}
}

// Sweep deletes the rows of locks without a holder and without waiters that were not used
// for that long, and returns the number of locks, also with an error. Clients do so by
// themselves, see WithRetention. Tokens still rise: the greatest token of the deleted rows stays.
// The minimum is one minute. Sweep needs DELETE on the table. It reads 1,000 rows in a statement,
// and locks no row of a lock that is in use.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < backend.MinRetention {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	deleted, after := 0, place{}
	for {
		page, err := b.readPage(ctx, after, unused)
		for _, name := range page.dead {
			if err == nil {
				_, err = b.pass(ctx, values{row: name}, true) // frees the lock
			}
		}
		for some := range slices.Chunk(page.unused, sweepBatch) {
			if err == nil {
				var n int
				n, err = b.count(ctx, b.deletePacket(some, unused))
				deleted += n
			}
		}
		for some := range slices.Chunk(page.void, sweepBatch) {
			if err == nil {
				_, err = b.exec(ctx, b.sql("DELETE l FROM {table} l FORCE INDEX (PRIMARY) WHERE (name,place) IN ("+strings.Join(some, ",")+") AND place<0 AND expires<={now}", values{}))
			}
		}
		if after = page.last; err != nil || after.name == "" {
			return deleted, err
		}
		sleep(ctx, sweepPause)
	}
}

// place is the primary key of a row.
type place struct {
	name  string
	place int64
}

func (p place) literal() string { return fmt.Sprintf("(%s,%d)", lit(p.name), p.place) }

type page struct {
	last   place    // the last row; its name is "" if there was none
	dead   []string // unused locks whose waiters have died, or whose shared holders: names
	unused []string // these and other unused locks: primary keys, as literals
	void   []string // tombstones, as literals
}

// unusedFor is the condition for the row of a lock that has had no holder for a time. {at} is the
// server's clock.
func unusedFor(unused time.Duration) string {
	return fmt.Sprintf("expires<={at} AND tombstones<={at} AND GREATEST(expires,granted)<{at}-%[1]d AND (granted>0 OR token<{at}-%[1]d)", unused.Microseconds())
}

// readPage reads rows without a lock.
func (b *Backend) readPage(ctx context.Context, after place, unused time.Duration) (page, error) {
	q := b.sql(fmt.Sprintf(`SELECT l.name,l.place,l.place=0 AND l.name<>'' AND %s,served<last,
EXISTS(SELECT 1 FROM {table} w WHERE w.name=l.name AND w.place>l.served AND l.place=0 AND l.expires>={now}-%d-w.ttl),l.place<0 AND expires<={now},
l.place=0 AND l.expires={end} AND NOT EXISTS(SELECT 1 FROM {table} h WHERE h.name=l.name AND h.place>{shares} AND h.expires>={now}-%[6]d)
FROM {table} l WHERE l.name>=%[3]s AND (l.name>%[3]s OR l.place>%[4]d) ORDER BY l.name,l.place LIMIT %[5]d`,
		strings.ReplaceAll(unusedFor(unused), "{at}", "{now}"), deadAfter.Microseconds(), lit(after.name), after.place, sweepPage, unused.Microseconds()), values{})
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (p page, err error) {
		rows, err := c.QueryContext(ctx, q)
		if err != nil {
			return p, failure(err)
		}
		defer rows.Close()
		for rows.Next() {
			var unused, waiters, alive, void, ended bool
			if err := rows.Scan(&p.last.name, &p.last.place, &unused, &waiters, &alive, &void, &ended); err != nil {
				return p, failure(err)
			}
			switch {
			case ended: // its last shared holder has expired
				p.dead, p.unused = append(p.dead, p.last.name), append(p.unused, p.last.literal())
			case unused && !alive:
				p.unused = append(p.unused, p.last.literal())
				if waiters {
					p.dead = append(p.dead, p.last.name)
				}
			case void:
				p.void = append(p.void, p.last.literal())
			}
		}
		return p, failure(rows.Err())
	})
}

// deletePacket deletes those of some locks that are unused and have no waiters. It first raises the
// floor of the tokens: a new row of such a name begins above it.
func (b *Backend) deletePacket(keys []string, unused time.Duration) packet {
	const floor = "name='' AND place=0"
	these := "FORCE INDEX (PRIMARY) WHERE (name,place) IN (" + strings.Join(keys, ",") + ") AND served=last AND " +
		strings.ReplaceAll(unusedFor(unused), "{at}", "@interlock_now")
	return b.packet(values{}, packet{
		"START TRANSACTION",
		"SELECT {now},MAX(token) INTO @interlock_now,@interlock_last FROM {table} WHERE " + floor + " FOR UPDATE",
		"SELECT IFNULL(MAX(token),0),COUNT(*) INTO @interlock_last,@interlock_do FROM {table} l " + these + " FOR UPDATE",
		"INSERT INTO {table} (name,place,token) VALUES ('',0,@interlock_last) ON DUPLICATE KEY UPDATE token=GREATEST(token,@interlock_last)",
		"DELETE l FROM {table} l " + these,
		commit,
		"SELECT @interlock_do",
	})
}

// count sends a packet whose result is a number.
func (b *Backend) count(ctx context.Context, p packet) (int, error) {
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) (n int, err error) {
		err = b.queryOne(ctx, c, p, &n)
		return n, err
	})
}
