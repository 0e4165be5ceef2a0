package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const pageSize = 500 // rows of one SELECT of List

// infos reads the rows that a condition selects.
func (b *Backend) infos(ctx context.Context, where string) ([]backend.Info, error) {
	q := fmt.Sprintf("SELECT name,owner,token,expires,granted,metadata,queue,%s FROM %s WHERE %s%s", now, b.table.quoted(), where, b.lockingRead) //nolint:gosec // constants and the quoted table
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) ([]backend.Info, error) {
		rows, err := c.QueryContext(ctx, q)
		if err != nil {
			return nil, failure(err)
		}
		defer rows.Close()
		var all []backend.Info
		for rows.Next() {
			var key string
			var granted int64
			var s rowState
			if err := rows.Scan(&key, &s.owner, &s.token, &s.expires, &granted, &s.metadata, &s.queue, &s.now); err != nil {
				return nil, failure(err)
			}
			info := backend.Info{Name: strings.TrimPrefix(key, b.key("")), Waiters: contenders(s.queue, s.now)}
			if s.held() {
				h := s.holder()
				h.Age = since(granted, s.now)
				info.Holder = &h
			}
			all = append(all, info)
		}
		return all, failure(rows.Err())
	})
}

// Inspect returns the holder and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	found, err := b.infos(ctx, "name="+lit(b.key(key)))
	if err != nil || len(found) == 0 {
		return backend.Info{Name: key}, err
	}
	return found[0], nil
}

// List lists the held keys of the prefix, in pages by primary key.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	prefix := b.key("")
	after, end := prefix, prefix[:len(prefix)-1]+";" // the byte that follows the colon
	for {
		found, err := b.infos(ctx, fmt.Sprintf("name>%s AND name<%s AND expires>%s ORDER BY name LIMIT %d", lit(after), lit(end), now, pageSize))
		if err != nil {
			return err
		}
		for _, info := range found {
			if info.Holder != nil && !yield(info) {
				return nil
			}
		}
		if len(found) < pageSize {
			return nil
		}
		after = b.key(found[pageSize-1].Name)
	}
}

// Break releases a key for its holder and returns the holder, or nil if the key was free.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	for {
		info, err := b.Inspect(ctx, key)
		if err != nil || info.Holder == nil {
			return nil, err
		}
		if owner != "" && owner != info.Holder.Owner {
			return nil, &backend.LockedError{Holder: *info.Holder}
		}
		n, err := b.leaveRow(ctx, info.Holder.Owner, b.release(key, info.Holder.Owner, false))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue // the key was released meanwhile
		}
		next, err := b.Inspect(ctx, key)
		if b.notifier != nil && (err != nil || next.Holder != nil) {
			b.notifier.killOwner(ctx, info.Holder.Owner) // another process does not release its named lock
		}
		return info.Holder, nil
	}
}
