package pglock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

// Guard makes a transaction of the application's own depend on a lock: it fails
// with ErrLost if the grant does not hold the lock any more, and otherwise nobody
// else can get the lock before the transaction has ended. The transaction must be
// in the database of the locks. Call it first in the transaction:
//
//	token, _ := l.Token()
//	err := b.Guard(ctx, tx, l.Name(), l.Owner(), token)
//
// Renewals, too, wait until the transaction has ended, so it must be much shorter
// than the TTL. Its user needs UPDATE on the lock table, as for any FOR SHARE. At
// REPEATABLE READ and above it may fail with 40001, to be begun again as usual.
//
// With lock.WithLocalHandOff owner and token are those of the lease's BackendHold, and
// what is guarded is the grant: the same client may pass it on meanwhile, so end the
// transaction before Unlock.
func (b *Backend) Guard(ctx context.Context, tx pgx.Tx, name, owner string, token uint64) error {
	if token > math.MaxInt64 {
		token = 0 // no such token
	}
	args := []any{b.key(name), owner, int64(token)}
	if b.pooled {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	err := tx.QueryRow(ctx, b.sql.guard, args...).Scan()
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w: the row %.200q of table %s is not ours any more", backend.ErrLost, b.key(name), b.sql.table)
	}
	return err
}

// Sweep deletes the rows of locks that nobody has held or waited for since then,
// and returns their number. Without it a row stays for each name ever used. Tokens
// still rise, because a new row's first token is the server's clock, as long as
// that is not set back by as much. It needs DELETE on the table.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < time.Minute {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	return b.exec(ctx, b.sql.sweepOld, micro(unused))
}
