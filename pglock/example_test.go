package pglock_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/pglock"
)

// A transaction that commits only while the lock is held.
func ExampleBackend_Guard() {
	ship := func(ctx context.Context, pool *pgxpool.Pool, b *pglock.Backend, l *lock.Lease) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			token, _ := l.Token()
			if err := b.Guard(ctx, tx, l.Name(), l.Owner(), token); err != nil {
				return err // ErrLost: nothing is written
			}
			_, err := tx.Exec(ctx, "UPDATE orders SET state = 'shipped' WHERE id = 42")
			return err
		})
	}
	_ = ship
}

// A row that refuses a token lower than the greatest it has seen, in any database.
func Example_token() {
	ship := func(ctx context.Context, pool *pgxpool.Pool, token uint64) (stale bool, err error) {
		done, err := pool.Exec(ctx, "UPDATE orders SET state = 'shipped', fence = $1 WHERE id = 42 AND fence <= $1", int64(token))
		return err == nil && done.RowsAffected() == 0, err
	}
	_ = ship
}

// The row of a lock, for a statement of the application that reads the table.
func ExampleKey() {
	fmt.Printf("%s\n", pglock.Key(pglock.DefaultPrefix, "orders/42"))
	// Output: lock:orders/42
}
