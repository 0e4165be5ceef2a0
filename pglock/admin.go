package pglock

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

const listPage = 500

// Inspect returns the holder and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	name := b.key(key)
	infos, err := b.infos(ctx, name, name, 1)
	if err != nil || len(infos) == 0 {
		return backend.Info{Name: key}, err
	}
	return infos[0], nil
}

// infos reads up to limit rows from one name to another.
func (b *Backend) infos(ctx context.Context, from, to []byte, limit int) ([]backend.Info, error) {
	infos, _, err := query(ctx, b, 0, func(r pgx.CollectableRow) (backend.Info, error) {
		var name []byte
		var token, left, age int64
		var owner, metadata string
		var queue []string
		err := r.Scan(&name, &token, &owner, &metadata, &left, &age, &queue)
		i := backend.Info{Name: strings.TrimPrefix(string(name), b.opt.prefix+":")}
		if owner != "" && left > 0 {
			h := holder(owner, metadata, token, left)
			h.Age = max(micros64(age), 0)
			i.Holder = &h
		}
		for _, q := range queue {
			if len(q) >= entryMetadata {
				i.Waiters = append(i.Waiters, backend.Contender{Owner: q[:32], Metadata: unescape(q[entryMetadata:])})
			}
		}
		return i, err
	}, b.sql.inspect, from, to, limit)
	return infos, err
}

// List lists the held keys of the prefix. It reads pages of 500 rows and keeps no
// connection while yield runs.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	from, to := b.key(""), bytes.Repeat([]byte{0xff}, len(b.opt.prefix)+2+backend.MaxName)
	copy(to, from)
	for {
		infos, err := b.infos(ctx, from, to, listPage)
		if err != nil {
			return err
		}
		for _, i := range infos {
			if !yield(i) {
				return nil
			}
		}
		if len(infos) < listPage {
			return nil
		}
		from = append(b.key(infos[len(infos)-1].Name), 0) // the next name that is possible
	}
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	removed, _, err := query(ctx, b, 0, func(r pgx.CollectableRow) (backend.Holder, error) {
		var token, left int64
		var owner, metadata string
		err := r.Scan(&token, &owner, &metadata, &left, nil, nil, nil, nil)
		return holder(owner, metadata, token, left), err
	}, b.sql.breakLock, b.key(key), owner)
	if err != nil || len(removed) == 0 {
		if err == nil && owner != "" {
			return nil, b.otherHolder(ctx, key)
		}
		return nil, err
	}
	return &removed[0], nil
}

// otherHolder returns a *backend.LockedError with the holder of a key, or nil if it is free.
func (b *Backend) otherHolder(ctx context.Context, key string) error {
	info, err := b.Inspect(ctx, key)
	if err == nil && info.Holder != nil {
		err = &backend.LockedError{Holder: *info.Holder}
	}
	return err
}

// Sweep deletes the rows of locks without a holder and without waiters that were not
// used for that long, and returns their number, also with an error. Without Sweep each
// name that was ever used keeps its row. Tokens still rise, because the first token of a
// new row is the server's clock, unless that clock is set back by as much. The minimum is
// one minute. Sweep needs DELETE on the table. It looks at 1,000 rows in a statement.
func (b *Backend) Sweep(ctx context.Context, unused time.Duration) (int, error) {
	if unused < time.Minute {
		return 0, backend.Invalid("time unused", unused, "1m or more")
	}
	deleted, last := 0, []byte{}
	for {
		pages, _, err := query(ctx, b, 0, func(r pgx.CollectableRow) (n int, err error) {
			err = r.Scan(&n, &last)
			return n, err
		}, b.sql.deleteUnused, micro(unused), last)
		if err != nil {
			return deleted, err
		}
		if deleted += pages[0]; len(last) == 0 {
			return deleted, nil
		}
	}
}
