package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/interlock-go/lock/backend"
)

// Guard verifies within tx that the lock of that name is still held with that
// token, and keeps it so until tx ends: a release, a hand-off or a break waits for
// that. Everything that tx writes is then written by the holder, whatever pauses
// and partitions there were. The transaction must be short: the lock cannot be
// renewed while it lasts. It returns ErrLost if the lock is not held with that
// token; roll back then.
//
// The table must be in the same server as the data, and tx must be able to read
// and lock it; the user of tx needs SELECT and UPDATE on it.
//
// With lock.WithLocalHandOff the token is that of the lease's BackendHold, and what is
// guarded is the grant: the same client may pass it on meanwhile, so end the transaction
// before Unlock.
func (b *Backend) Guard(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	var live bool
	q := fmt.Sprintf("SELECT token=%d AND owner<>'' AND expires>%s FROM %s WHERE name=%s LOCK IN SHARE MODE", token, now, b.table.quoted(), lit(b.key(name))) //nolint:gosec // the table is validated and quoted, the key a hex literal
	err := tx.QueryRowContext(ctx, q).Scan(&live)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return failure(err)
	}
	if !live {
		return fmt.Errorf("%w: row %.200q of table %s is not held with token %d", backend.ErrLost, b.key(name), b.table, token)
	}
	return nil
}
