package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const pageSize = 500 // rows of one SELECT of List

// infos reads the locks that a condition on their rows selects, with their waiters and shared holders.
func (b *Backend) infos(ctx context.Context, where string) ([]backend.Info, error) {
	return run(ctx, b, b.poolConn, func(ctx context.Context, c *sql.Conn) ([]backend.Info, error) {
		all, err := b.readLocks(ctx, c, "place=0 AND "+where+b.lockingRead)
		var names []string
		for _, info := range all {
			if info.Holder == nil || info.Waiters != nil {
				names = append(names, lit(b.key(info.Name)))
			}
		}
		if err != nil || len(names) == 0 {
			return all, failure(err)
		}
		whole, err := b.readLocks(ctx, c, "name IN ("+strings.Join(names, ",")+") AND place>=0 ORDER BY name,place")
		for i := 0; i < len(all) && len(whole) > 0; i++ {
			if all[i].Name == whole[0].Name {
				all[i], whole = whole[0], whole[1:]
			}
		}
		return all, failure(err)
	})
}

// readLocks reads rows, of which that of a lock comes before those of its contenders. A lock of which
// it has read no waiters has an empty list of them if there may be some.
func (b *Backend) readLocks(ctx context.Context, c *sql.Conn, where string) (all []backend.Info, err error) {
	q := b.sql("SELECT name,place,owner,token,expires,granted,metadata,served<last,weight,capacity,slots,{now} FROM {table} WHERE "+where, values{})
	rows, err := c.QueryContext(ctx, q)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	shared := false // of the last lock
	for rows.Next() {
		var key, slots string
		var granted int64
		var s rowState
		err := rows.Scan(&key, &s.place, &s.owner, &s.token, &s.expires, &granted, &s.metadata, &s.waiters, &s.share.Weight, &s.share.Capacity, &slots, &s.now)
		if err != nil {
			return nil, err
		}
		if s.place > 0 {
			s.slots = parseSlots(slots)
		}
		h := s.holder()
		h.Age = since(granted, s.now)
		name := strings.TrimPrefix(key, b.key(""))
		if s.place == 0 {
			info := backend.Info{Name: name}
			if shared = s.unread(); !shared && s.held() {
				info.Holder = &h
				info.Holder.Share = backend.Share{}
			}
			if s.waiters {
				info.Waiters = []backend.Contender{}
			}
			all = append(all, info)
			continue
		}
		if len(all) == 0 || all[len(all)-1].Name != name {
			continue // the row of the lock was deleted by hand
		}
		switch info := &all[len(all)-1]; {
		case s.place < shareBase:
			info.Waiters = append(info.Waiters, h.Contender)
		case !shared || !s.held():
		case info.Holder == nil:
			info.Holder = &h
		default:
			info.Others = append(info.Others, h)
		}
	}
	return all, rows.Err()
}

// Inspect returns the holders and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	found, err := b.infos(ctx, "name="+lit(b.key(key)))
	if err != nil || len(found) == 0 {
		return backend.Info{Name: key}, err
	}
	info := found[0]
	if len(info.Waiters) == 0 {
		info.Waiters = nil
	}
	return info, nil
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

// Break releases a key for a holder, or for all holders that it has, and returns the first of these, or
// nil if the key was free.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	for {
		info, err := b.Inspect(ctx, key)
		if err != nil || info.Holder == nil {
			return nil, err
		}
		all := append([]backend.Holder{*info.Holder}, info.Others...)
		if owner != "" {
			all = slices.DeleteFunc(all, func(h backend.Holder) bool { return h.Owner != owner })
		}
		if len(all) == 0 {
			return nil, &backend.LockedError{Holder: *info.Holder}
		}
		var first *backend.Holder
		for i := range all {
			held, err := b.breakOne(ctx, key, all[i])
			if held && first == nil {
				first = &all[i]
			}
			if err != nil {
				return first, err
			}
		}
		if first != nil {
			return first, nil
		} // else the key was released meanwhile
	}
}

func (b *Backend) breakOne(ctx context.Context, key string, h backend.Holder) (held bool, err error) {
	v := values{req: backend.Request{Key: key, Owner: h.Owner}}
	if !h.Share.Exclusive() {
		v.share, v.slots = sharePlace(h.Token), h.Slots
	}
	v.hold = true
	if held, err = b.leave(ctx, v, false, v.share > 0); err != nil || !held {
		return held, err
	}
	next, err := b.Inspect(ctx, key)
	if b.notifier != nil && (err != nil || next.Holder != nil) {
		b.notifier.killOwner(ctx, h.Owner) // another process does not release its named lock
	}
	return true, nil
}
