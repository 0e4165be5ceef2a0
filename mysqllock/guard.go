package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/interlock-go/lock/backend"
)

// Guard verifies in tx that the lock name is still held with token, and locks the row of that holder until tx ends: a
// release, a hand-off or a break of it waits for that. So the holder has written everything that tx writes, whatever
// pauses and partitions there were. If the lock is not held with that token, Guard returns ErrLost; roll back then.
//
// At REPEATABLE READ MariaDB from 11.6 on (innodb_snapshot_isolation) returns error 1020 if the lease was renewed
// after the snapshot of tx. Call Guard first in tx, and after this error begin tx again, as after a deadlock.
//
// Keep the transaction short: the lease cannot be renewed meanwhile, and with an exclusive lease, whose row is that
// of the lock, no attempt can enter its queue. Other readers, and holders of other permits, are granted, renewed and
// released. The tables must be on the same server as the data, and the user of tx needs SELECT and UPDATE on them.
//
// With lock.WithLocalHandOff pass the token of the lease's BackendHold. Guard then guards the grant, which the same
// client may pass on: end the transaction before Unlock.
func (b *Backend) Guard(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	s := b.svc
	key := lit(s.key(name))
	// Which row has the lease is read without a lock: to lock one that is not there would lock others out.
	var whole sql.NullBool
	find := s.schema.sql(fmt.Sprintf(
		"SELECT owner IS NOT NULL AND token = %d FROM `interlock` WHERE name = %s", token, key))
	if err := tx.QueryRowContext(ctx, find).Scan(&whole); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return failure(err)
	}
	lock := s.schema.sql(fmt.Sprintf(
		"SELECT token = %d AND owner IS NOT NULL AND expires > %s FROM `interlock` WHERE name = %s "+
			"LOCK IN SHARE MODE", token, clock, key))
	share := s.schema.sql(fmt.Sprintf(
		"SELECT ends > %s FROM `interlock_places` WHERE name = %s AND place = %s + %d "+
			"LOCK IN SHARE MODE", clock, key, shareBase, token))
	both := []string{share, lock}
	if whole.Bool {
		both = []string{lock, share}
	}
	for _, q := range both { // the other one if the snapshot of tx is old
		var held bool
		if err := tx.QueryRowContext(ctx, q).Scan(&held); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return failure(err)
		}
		if held {
			return nil
		}
	}
	return fmt.Errorf("%w: row %.200q of table %s is not held with token %d",
		backend.ErrLost, s.key(name), s.schema.table, token)
}
