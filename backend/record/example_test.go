package record_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// table is a service that writes a row only if the row has the expected version.
type table struct {
	mu   sync.Mutex // guards rows
	rows map[string]record.Item
}

func (t *table) Read(_ context.Context, key string) (record.Item, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[key], nil
}

func (t *table) Write(_ context.Context, key string, value []byte, version string, _ time.Duration) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[key].Version != version {
		return "", record.ErrChanged
	}
	n, _ := strconv.Atoi(version) // "" is no row
	next := strconv.Itoa(n + 1)
	t.rows[key] = record.Item{Value: value, Version: next}
	return next, nil
}

func Example() {
	ctx := context.Background()
	locks := record.New(&table{rows: map[string]record.Item{}}, record.Options{})
	first, err := locks.TryAcquire(ctx, backend.Request{Key: "orders/42", Owner: "a", TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.TryAcquire(ctx, backend.Request{Key: "orders/42", Owner: "b", TTL: 10 * time.Second})
	fmt.Println(errors.Is(err, backend.ErrLocked))
	fmt.Println(first.Release(ctx))
	_, err = locks.TryAcquire(ctx, backend.Request{Key: "orders/42", Owner: "b", TTL: 10 * time.Second})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
	// <nil>
}
