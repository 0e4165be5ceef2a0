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

// Inspect tells who holds and who waits for a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	name := b.key(key)
	infos, err := b.rows(ctx, name, name, 1)
	if err != nil || len(infos) == 0 {
		return backend.Info{Name: key}, err
	}
	return infos[0], nil
}

// rows reads the locks from one name to another.
func (b *Backend) rows(ctx context.Context, from, to []byte, most int) (infos []backend.Info, err error) {
	_, err = b.query(ctx, func() { infos = nil }, func(r pgx.Rows) error {
		var name []byte
		var token, left, age int64
		var owner, metadata string
		var queue []string
		if err := r.Scan(&name, &token, &owner, &metadata, &left, &age, &queue); err != nil {
			return err
		}
		i := backend.Info{Name: strings.TrimPrefix(string(name), b.opt.prefix+":")}
		if owner != "" && left > 0 {
			h := holder(owner, metadata, uint64(max(token, 0)), time.Duration(left)*time.Microsecond)
			h.Age = max(time.Duration(age)*time.Microsecond, 0)
			i.Holder = &h
		}
		for _, q := range queue {
			if len(q) >= 64 {
				i.Waiters = append(i.Waiters, backend.Party{Owner: q[:32], Metadata: unescape(q[64:])})
			}
		}
		infos = append(infos, i)
		return nil
	}, b.sql.inspect, from, to, most)
	return infos, err
}

// List lists the held keys of the prefix, some at a time, so that no connection is
// kept while yield runs.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	from, to := b.key(""), bytes.Repeat([]byte{0xff}, len(b.opt.prefix)+2+backend.MaxName)
	copy(to, from)
	for {
		infos, err := b.rows(ctx, from, to, listPage)
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
		from = append(b.key(infos[len(infos)-1].Name), 0) // the least name behind the last
	}
}

// Break frees a key whoever holds it.
func (b *Backend) Break(ctx context.Context, key string) (*backend.Holder, error) {
	var h *backend.Holder
	_, err := b.query(ctx, func() { h = nil }, func(r pgx.Rows) error {
		var token, left int64
		var owner, metadata string
		var told [4]*string
		err := r.Scan(&token, &owner, &metadata, &left, &told[0], &told[1], &told[2], &told[3])
		removed := holder(owner, metadata, uint64(max(token, 0)), time.Duration(left)*time.Microsecond)
		h = &removed
		return err
	}, b.sql.breakLock, b.key(key))
	if err != nil {
		return nil, err
	}
	return h, nil
}
