package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/interlock-go/lock/backend"
)

// Guard verifies in tx that the lock name is still held with token, and locks its row until
// tx ends: a release, a hand-off or a break waits for that. So the holder has written
// everything that tx writes, whatever pauses and partitions there were. If the lock is not
// held with that token, Guard returns ErrLost; roll back then.
//
// At REPEATABLE READ MariaDB from 11.6 on (innodb_snapshot_isolation) returns error 1020 if the lease
// was renewed after the snapshot of tx. Call Guard first in tx, and after this error begin tx again, as
// after a deadlock.
//
// Keep the transaction short: the lease cannot be renewed meanwhile. For a lease of a reader or of
// permits Guard locks only the row of that lease: others are granted, renewed and released. The
// table must be on the same server as the data, and the user of tx needs SELECT and UPDATE on it.
//
// With lock.WithLocalHandOff pass the token of the lease's BackendHold. Guard then guards the
// grant, which the same client may pass on: end the transaction before Unlock.
func (b *Backend) Guard(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	// The first condition selects the row that has the lease, in one round trip, from what the snapshot
	// of tx shows. If that is old, the rows are read one after the other.
	share := fmt.Sprint(sharePlace(token))
	var held bool
	for _, place := range []string{"IF((SELECT f.expires={end} FROM {table} f WHERE f.name={name} AND f.place=0)," + share + ",0)", "0", share} {
		q := b.sql(fmt.Sprintf("SELECT token=%d AND owner<>'' AND expires>{now} FROM {table} WHERE name={name} AND place=%s LOCK IN SHARE MODE", token, place), values{req: backend.Request{Key: name}})
		err := tx.QueryRowContext(ctx, q).Scan(&held)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return failure(err)
		}
		if held {
			return nil
		}
	}
	return fmt.Errorf("%w: row %.200q of table %s is not held with token %d", backend.ErrLost, b.key(name), b.table, token)
}
