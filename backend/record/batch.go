package record

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Batch is a Store that reads and writes many records in fewer requests than one each. A key occurs once.
type Batch interface {
	// ReadAll returns the records of keys, in their order, or an error that holds for all.
	ReadAll(ctx context.Context, keys []string) ([]Item, error)
	// WriteAll writes records. The error at i is what Write of the one at i would have returned.
	WriteAll(ctx context.Context, writes []Write) []error
}

// Write is a record to be written, with the arguments of [Store].Write.
type Write struct {
	Key, Version string
	Value        []byte
	TTL          time.Duration
}

var errBusy = backend.NotExecuted(errors.New("another request of the grant is under way"))

// RenewAll implements backend.BatchRenewer for a driver that has a Batch, with one read and one write of all records.
func (l *Locks) RenewAll(ctx context.Context, renewals []backend.Renewal, batch Batch) []error {
	errs := make([]error, len(renewals))
	var all []*batched
	var keys []string
	for i, r := range renewals {
		g := r.Grant.(*grant)
		select {
		case g.turn <- struct{}{}:
			defer g.end()
			all = append(all, &batched{grant: g, ttl: r.TTL, i: i})
			keys = append(keys, g.key)
		default:
			errs[i] = errBusy
		}
	}
	items, err := batch.ReadAll(ctx, keys)
	if err != nil {
		for _, b := range all {
			errs[b.i] = backend.NotExecuted(err)
		}
		return errs
	}
	var ours []*batched
	var writes []Write
	for k, b := range all {
		v := decode(items[k])
		if b.ended || !v.Held || v.Owner != b.v.Owner {
			errs[b.i] = backend.ErrLost
			continue
		}
		ours = append(ours, b)
		writes = append(writes, b.prepare(items[k].Version, v.Waiting))
	}
	if len(ours) == 0 {
		return errs
	}
	for k, err := range batch.WriteAll(ctx, writes) {
		b := ours[k]
		if errs[b.i] = err; err == nil {
			b.extended(b.sent, b.keep, b.ttl)
		}
	}
	return errs
}

// batched is one renewal of RenewAll.
type batched struct {
	*grant
	i         int // of the renewal
	ttl, keep time.Duration
	sent      time.Time
}

func (b *batched) prepare(version string, waiting []place) Write {
	b.sent, b.v.Waiting = time.Now(), waiting
	var next value
	next, b.keep = b.renewal(b.sent, b.ttl)
	b.version = "" // until it is read again
	return Write{Key: b.key, Version: version, Value: next.encode(), TTL: next.ttl()}
}
