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
	"github.com/interlock-go/lock/backend/call"
)

const (
	sweepPage  = 1000 // rows that one statement reads
	sweepBatch = 100  // rows that one statement deletes
	sweepPause = 10 * time.Millisecond
	markEvery  = 6 * time.Hour  // how often a process records which version of the procedures it uses
	minVersion = 24 * time.Hour // for how long an unused version stays at least
	staleEvent = time.Hour      // after which no process will read an event
)

// sweepUnused records that the procedures are in use, and deletes unused rows, until Close. Of all clients one sweeps
// four times within the retention: each asks whether it is to be it, at times of its own.
func (s *service) sweepUnused() {
	interval := markEvery
	if s.opt.retention > 0 {
		interval = min(interval, s.opt.retention/4)
	}
	life := s.life.Context()
	for call.Sleep(life, interval/2+rand.N(interval/2)) {
		_, _ = s.change(life, s.markUsed())
		if s.opt.retention == 0 {
			continue
		}
		turn := s.schema.sql(fmt.Sprintf("INSERT INTO `interlock` (name, expires) VALUES (%s, %s) "+
			"ON DUPLICATE KEY UPDATE expires = IF(expires < %[2]s - %d, %[2]s, expires)",
			lit(turnName), clock, interval.Microseconds()))
		if n, err := s.change(life, turn); err == nil && n > 0 {
			_, _ = s.sweep(life, s.opt.retention)
		}
	}
}

// Sweep deletes the rows of locks without a holder and without waiters that were not used for that long, and returns
// the number of locks, also with an error. Clients do so by themselves, see WithRetention. Tokens still rise, because
// a new row begins with the clock of the server. The minimum is one minute. Sweep needs DELETE on the tables. It
// reads 1,000 rows in a statement, and locks no row of a lock that is in use.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < backend.MinRetention {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	return b.svc.sweep(ctx, unused)
}

func (s *service) sweep(ctx context.Context, unused time.Duration) (int, error) {
	deleted, err := s.sweepLocks(ctx, unused)
	if err == nil {
		// tombstones, and what is left of locks whose rows were deleted by hand
		err = s.sweepRows(ctx, "`interlock_places`", "name, place, since", "place < 0 AND since <= "+clock+
			" OR NOT EXISTS (SELECT 1 FROM `interlock` l WHERE l.name = q.name)")
	}
	if err == nil {
		err = s.sweepRows(ctx, "`interlock_events`", "process, id, sent",
			fmt.Sprintf("sent < %s - %d", clock, staleEvent.Microseconds()))
	}
	if err == nil {
		err = s.dropVersions(ctx, max(unused, minVersion))
	}
	return deleted, err
}

// sweepLocks also frees locks whose holders and waiters have died.
func (s *service) sweepLocks(ctx context.Context, unused time.Duration) (deleted int, err error) {
	old := fmt.Sprintf("expires < %s - %d AND token < %[1]s - %[2]d AND ended <= %[1]s", clock, unused.Microseconds())
	const free = "owner IS NULL AND shares = 0 AND waiters = 0"
	type page struct {
		names, dead []string
		last        string
		n           int
	}
	for after := "\x01"; ; {
		q := s.schema.sql(fmt.Sprintf(
			"SELECT name, %s, %s FROM `interlock` WHERE name > %s ORDER BY name LIMIT %d", old, free, lit(after), sweepPage))
		p, err := read(ctx, s, func(ctx context.Context, c *sql.Conn) (p page, err error) {
			rows, err := c.QueryContext(ctx, q)
			if err != nil {
				return p, err
			}
			defer rows.Close()
			for rows.Next() {
				var isOld, isFree bool
				if err := rows.Scan(&p.last, &isOld, &isFree); err != nil {
					return p, err
				}
				p.n++
				switch {
				case isOld && isFree:
					p.names = append(p.names, lit(p.last))
				case isOld:
					p.dead = append(p.dead, p.last)
				}
			}
			return p, rows.Err()
		})
		after = p.last
		for _, name := range p.dead {
			if err == nil {
				_, err = s.ask(ctx, s.alone("pass", name, "", "''"))
			}
		}
		for some := range slices.Chunk(p.names, sweepBatch) {
			if err == nil {
				var n int64
				n, err = s.change(ctx, s.schema.sql("DELETE l FROM `interlock` l FORCE INDEX (PRIMARY) WHERE name IN ("+
					strings.Join(some, ",")+") AND "+free+" AND "+old))
				deleted += int(n)
			}
		}
		if err != nil || p.n < sweepPage {
			return deleted, err
		}
		call.Sleep(ctx, sweepPause)
	}
}

// sweepRows deletes rows of another table. The columns are its primary key and the time of the row, which is another
// one in a row that has been written again.
func (s *service) sweepRows(ctx context.Context, name, columns, which string) error {
	key := strings.Split(columns, ", ")
	type page struct {
		rows   []string
		first  string // of the last row
		second int64
		n      int
	}
	for last := (page{}); ; {
		q := s.schema.sql(fmt.Sprintf("SELECT %s, %s FROM %s q "+
			"WHERE %[4]s >= %[6]s AND (%[4]s > %[6]s OR %[5]s > %[7]d) ORDER BY %[4]s, %[5]s LIMIT %[8]d",
			columns, which, name, key[0], key[1], lit(last.first), last.second, sweepPage))
		p, err := read(ctx, s, func(ctx context.Context, c *sql.Conn) (p page, err error) {
			found, err := c.QueryContext(ctx, q)
			if err != nil {
				return p, err
			}
			defer found.Close()
			for found.Next() {
				var at int64
				var selected bool
				if err := found.Scan(&p.first, &p.second, &at, &selected); err != nil {
					return p, err
				}
				if p.n++; selected {
					p.rows = append(p.rows, fmt.Sprintf("(%s,%d,%d)", lit(p.first), p.second, at))
				}
			}
			return p, found.Err()
		})
		last = p
		for some := range slices.Chunk(p.rows, sweepBatch) {
			if err == nil {
				_, err = s.change(ctx, s.schema.sql(fmt.Sprintf(
					"DELETE q FROM %s q FORCE INDEX (PRIMARY) WHERE (%s) IN (%s)", name, columns, strings.Join(some, ","))))
			}
		}
		if err != nil || p.n < sweepPage {
			return err
		}
		call.Sleep(ctx, sweepPause)
	}
}

// dropVersions drops the versions of the procedures that no process has used for that long.
func (s *service) dropVersions(ctx context.Context, unused time.Duration) error {
	old := fmt.Sprintf("l.name > X'00' AND l.name < X'01' AND LENGTH(l.name) = %d AND l.expires < %s - %d",
		1+len(s.schema.version), clock, unused.Microseconds())
	statements, err := read(ctx, s, func(ctx context.Context, c *sql.Conn) (all []string, err error) {
		rows, err := c.QueryContext(ctx, s.schema.sql("SELECT l.name, r.routine_name FROM `interlock` l "+
			"LEFT JOIN information_schema.routines r ON r.routine_schema = "+s.database()+
			" AND LEFT(r.routine_name, 10) = 'interlock_'"+
			" AND RIGHT(r.routine_name, 13) = CONCAT('_', CONVERT(SUBSTRING(l.name, 2) USING utf8mb4))"+
			" WHERE "+old+" LIMIT 1000"))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var version string
			var name sql.NullString
			if err := rows.Scan(&version, &name); err != nil {
				return nil, err
			}
			q := s.schema.sql("DELETE l FROM `interlock` l FORCE INDEX (PRIMARY) WHERE l.name = "+lit(version)+" AND ") + old
			if name.Valid { // the row stays until its procedures have gone
				q = "DROP PROCEDURE IF EXISTS " + table{s.schema.table.database, name.String}.quoted()
			}
			all = append(all, q)
		}
		return all, rows.Err()
	})
	for _, q := range statements {
		if err == nil {
			_, err = s.change(ctx, q)
		}
	}
	return err
}

// change executes a statement at READ COMMITTED, and returns how many rows it changed.
func (s *service) change(ctx context.Context, q string) (n int64, err error) {
	return read(ctx, s, func(ctx context.Context, c *sql.Conn) (int64, error) {
		if _, err := c.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
			return 0, err
		}
		r, err := c.ExecContext(ctx, q)
		if err != nil {
			return 0, err
		}
		return r.RowsAffected()
	})
}
