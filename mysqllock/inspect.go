package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const pageSize = 500 // rows of one SELECT of List

// infos reads the locks that a condition on their rows selects, and their waiters.
func (b *Backend) infos(ctx context.Context, where string) ([]backend.Info, error) {
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) ([]backend.Info, error) {
		all, queues, err := b.readLocks(ctx, c, where)
		if err != nil || len(queues) == 0 {
			return all, failure(err)
		}
		return all, failure(b.readWaiters(ctx, c, all, queues))
	})
}

// readLocks also returns the conditions for their waiters, as far as there may be some.
func (b *Backend) readLocks(ctx context.Context, c *sql.Conn, where string) (all []backend.Info, queues []string, err error) {
	q := b.sql("SELECT name,owner,token,expires,granted,metadata,served,served<last,{now} FROM {table} WHERE place=0 AND "+where+b.lockingRead, values{})
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var granted, served int64
		var s rowState
		if err := rows.Scan(&key, &s.owner, &s.token, &s.expires, &granted, &s.metadata, &served, &s.waiters, &s.now); err != nil {
			return nil, nil, err
		}
		info := backend.Info{Name: strings.TrimPrefix(key, b.key(""))}
		if s.held() {
			h := s.holder()
			h.Age = since(granted, s.now)
			info.Holder = &h
		}
		if s.waiters {
			queues = append(queues, fmt.Sprintf("name=%s AND place>%d", lit(key), served))
		}
		all = append(all, info)
	}
	return all, queues, rows.Err()
}

// readWaiters adds the waiters to the locks, which are in the order of the rows.
func (b *Backend) readWaiters(ctx context.Context, c *sql.Conn, all []backend.Info, queues []string) error {
	q := b.sql("SELECT name,owner,metadata,granted,{now} FROM {table} WHERE "+strings.Join(queues, " OR ")+" ORDER BY name,place", values{})
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var w backend.Contender
		var joined, now int64
		if err := rows.Scan(&key, &w.Owner, &w.Metadata, &joined, &now); err != nil {
			return err
		}
		w.Age = since(joined, now)
		for name := strings.TrimPrefix(key, b.key("")); all[0].Name != name; {
			all = all[1:]
		}
		all[0].Waiters = append(all[0].Waiters, w)
	}
	return rows.Err()
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
		found, err := b.infos(ctx, fmt.Sprintf("name>%s AND name<%s AND expires>{now} ORDER BY name LIMIT %d", lit(after), lit(end), pageSize))
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
		held, err := b.leave(ctx, values{req: backend.Request{Key: key, Owner: info.Holder.Owner}}, false)
		if err != nil {
			return nil, err
		}
		if !held {
			continue // the key was released meanwhile
		}
		next, err := b.Inspect(ctx, key)
		if b.notifier != nil && (err != nil || next.Holder != nil) {
			b.notifier.killOwner(ctx, info.Holder.Owner) // another process does not release its named lock
		}
		return info.Holder, nil
	}
}
