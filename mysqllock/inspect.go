package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const page = 500 // rows of one SELECT

// row is what inspect reads.
type row struct {
	name string
	info backend.Info
}

func (b *Backend) rows(ctx context.Context, q string) ([]row, error) {
	var found []row
	err := b.run(ctx, func(ctx context.Context, c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, q)
		if err != nil {
			return failure(err)
		}
		defer rows.Close()
		var all []row
		for rows.Next() {
			var key, owner, metadata, queue string
			var token uint64
			var expires, granted, now int64
			if err := rows.Scan(&key, &owner, &token, &expires, &granted, &metadata, &queue, &now); err != nil {
				return failure(err)
			}
			r := row{name: key, info: backend.Info{Name: strings.TrimPrefix(key, b.key("")), Waiters: parties(queue, now)}}
			if expires > now {
				h := holder(owner, metadata, token, time.Duration(expires-now)*time.Microsecond)
				h.Age = since(granted, now)
				r.info.Holder = &h
			}
			all = append(all, r)
		}
		if err := rows.Err(); err != nil {
			return failure(err)
		}
		found = all
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Inspect tells who holds and who waits for a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	found, err := b.rows(ctx, b.inspect("name="+lit(b.key(key)), ""))
	if err != nil || len(found) == 0 {
		return backend.Info{Name: key}, err
	}
	return found[0].info, nil
}

// List lists the held keys of the prefix, in pages by primary key.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	prefix := b.key("")
	after, end := prefix, prefix[:len(prefix)-1]+";" // the byte that follows the colon
	for {
		found, err := b.rows(ctx, b.inspect(
			fmt.Sprintf("name>%s AND name<%s AND expires>%s", lit(after), lit(end), now), fmt.Sprintf(" ORDER BY name LIMIT %d", page)))
		if err != nil {
			return err
		}
		for _, r := range found {
			if r.info.Holder != nil && !yield(r.info) {
				return nil
			}
		}
		if len(found) < page {
			return nil
		}
		after = found[page-1].name
	}
}

// Break frees a key whoever holds it.
func (b *Backend) Break(ctx context.Context, key string) (*backend.Holder, error) {
	for {
		info, err := b.Inspect(ctx, key)
		if err != nil || info.Holder == nil {
			return nil, err
		}
		n, err := b.giveUp(ctx, info.Holder.Owner, b.release(key, info.Holder.Owner, false))
		if err != nil {
			return nil, err
		}
		if n > 0 {
			next, err := b.Inspect(ctx, key)
			if b.bell != nil && (err != nil || next.Holder != nil) {
				b.bell.callOut(ctx, info.Holder.Owner) // another process cannot be asked to ring
			}
			return info.Holder, nil
		}
		// it was released or handed over meanwhile
	}
}
