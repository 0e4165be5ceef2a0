package pglock

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"
)

// Guard makes a transaction of the application depend on a lock. It returns ErrLost if
// the grant does not hold the lock any more; else no other client gets the lock before
// the transaction has ended. The transaction must be in the database of the locks. Call
// Guard first in the transaction:
//
//	token, _ := l.Token()
//	err := b.Guard(ctx, tx, l.Name(), l.Owner(), token)
//
// Nothing waits for the transaction but the end of this holder: its release, its downgrade, a break, and the next
// grant if its lease ends. So the transaction should be much shorter than the TTL. Its user needs UPDATE on the tables. At
// REPEATABLE READ and above Guard may fail with 40001; then begin again as usual. With lock.WithLocalHandOff owner and
// token are those of the lease's BackendHold; end the transaction before Unlock, because
// the client may pass the grant on.
func (b *Backend) Guard(ctx context.Context, tx pgx.Tx, name, owner string, token uint64) error {
	if token > math.MaxInt64 {
		token = 0 // no grant has it
	}
	args := []any{b.svc.key(name), owner, int64(token)}
	if b.svc.opt.pooled.Load() {
		args = append([]any{pgx.QueryExecModeExec}, args...)
	}
	err := tx.QueryRow(ctx, b.svc.sql.guard, args...).Scan(nil)
	if errors.Is(err, pgx.ErrNoRows) {
		return b.svc.lost(b.svc.key(name))
	}
	return err
}
