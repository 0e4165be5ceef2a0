package pglock

import (
	"bytes"
	"context"
	"encoding/hex"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
)

const listPage = 500 // locks

// Inspect returns the holders and the waiters of a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	name := b.svc.key(key)
	infos, err := b.svc.infos(ctx, name, name, 1)
	if err != nil || len(infos) == 0 {
		return backend.Info{Name: key}, err
	}
	return infos[0], nil
}

// List lists the held keys of the prefix. It reads pages of 500 locks and keeps no
// connection while yield runs.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	from, to := b.svc.key(""), bytes.Repeat([]byte{0xff}, len(b.svc.opt.prefix)+2+backend.MaxName)
	copy(to, from)
	for {
		infos, err := b.svc.infos(ctx, from, to, listPage)
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
		from = append(b.svc.key(infos[len(infos)-1].Name), 0) // the next name that is possible
	}
}

// place is a holder or a waiter of a lock.
type place struct {
	name, kind string
	holder     backend.Holder
}

// infos reads up to limit locks from one name to another.
func (s *service) infos(ctx context.Context, from, to []byte, limit int) ([]backend.Info, error) {
	places, _, err := query(ctx, s.server, scanPlace, s.sql.inspect, from, to, limit)
	var infos []backend.Info
	for _, p := range places {
		name, err := hex.DecodeString(p.name)
		if err != nil {
			return nil, err
		}
		key := strings.TrimPrefix(string(name), s.opt.prefix+":")
		if len(infos) == 0 || infos[len(infos)-1].Name != key {
			infos = append(infos, backend.Info{Name: key})
		}
		switch i := &infos[len(infos)-1]; {
		case p.kind == "w":
			i.Waiters = append(i.Waiters, p.holder.Contender)
		case i.Holder == nil:
			i.Holder = &p.holder
		default:
			i.Others = append(i.Others, p.holder)
		}
	}
	return infos, err
}

func scanPlace(r pgx.CollectableRow) (p place, err error) {
	var token, age, left int64
	h := &p.holder
	err = r.Scan(&p.name, &p.kind, &h.Owner, &h.Metadata, &h.Share.Weight, &h.Share.Capacity, &h.Slots, &token, &age, &left)
	if len(h.Slots) == 0 {
		h.Slots = nil
	}
	h.Metadata = unescape(h.Metadata)
	h.Token, h.Age, h.Left = uint64(max(token, 0)), max(micros(age), 0), max(micros(left), 0)
	return p, err
}
