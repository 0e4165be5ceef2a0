package pglock

import (
	"bytes"
	"context"
	"strings"

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
		var shared, queue []string
		err := r.Scan(&name, &token, &owner, &metadata, &left, &age, &shared, &queue)
		i := backend.Info{Name: strings.TrimPrefix(string(name), b.opt.prefix+":")}
		if owner != "" && left > 0 {
			h := holder(owner, metadata, token, left)
			h.Age = max(micros64(age), 0)
			i.Holder = &h
		}
		for _, text := range shared {
			h, _ := holderOf(text)
			if i.Holder == nil {
				i.Holder = &h
			} else {
				i.Others = append(i.Others, h)
			}
		}
		for _, q := range queue {
			if f := strings.SplitN(q, " ", 5); len(f) == 5 { // owner, age in µs, weight, capacity, metadata
				i.Waiters = append(i.Waiters, contender(f[0], f[1], f[2], f[3], f[4]))
			}
		}
		return i, err
	}, do(b.sql.inspect, from, to, limit))
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
	broken, err := b.end(ctx, ending{key: b.key(key), owner: owner, kind: "break"})
	switch {
	case err == nil && broken != nil:
		return broken, nil
	case err == nil && owner != "":
		return nil, b.otherHolder(ctx, key)
	}
	return nil, err
}

// otherHolder returns a *backend.LockedError with the holder of a key, or nil if it is free.
func (b *Backend) otherHolder(ctx context.Context, key string) error {
	info, err := b.Inspect(ctx, key)
	if err == nil && info.Holder != nil {
		err = &backend.LockedError{Holder: *info.Holder}
	}
	return err
}
