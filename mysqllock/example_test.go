package mysqllock_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/mysqllock"
)

// A transaction that commits only while the lock is held.
func ExampleBackend_Guard() {
	ship := func(ctx context.Context, db *sql.DB, b *mysqllock.Backend, l *lock.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		token, _ := l.Token()
		if err := b.Guard(ctx, tx, l.Name(), token); err != nil {
			return err // ErrLost: nothing is written
		}
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'shipped' WHERE id = 42"); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = ship
}

// The row of a lock, for a statement of the application that reads the table.
func ExampleKey() {
	fmt.Println(mysqllock.Key(mysqllock.DefaultPrefix, "orders/42"))
	// Output: lock:orders/42
}
