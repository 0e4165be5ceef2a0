package record_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// batch reads and writes one by one.
type batch struct {
	*memory
	readErr error
}

func (b batch) ReadAll(ctx context.Context, keys []string) (items []record.Item, err error) {
	for _, key := range keys {
		item, _ := b.Read(ctx, key)
		items = append(items, item)
	}
	return items, b.readErr
}

func (b batch) WriteAll(ctx context.Context, writes []record.Write) (errs []error) {
	for _, w := range writes {
		_, err := b.Write(ctx, w.Key, w.Value, w.Version, w.TTL)
		errs = append(errs, err)
	}
	return errs
}

// Of many grants that are renewed together each that is lost, released or busy has its own error, and the others are
// extended.
func TestRenewAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := record.New(m, record.Options{})
		var all []backend.Renewal
		for i := range 4 {
			req := request(fmt.Sprint("owner", i))
			req.Key = fmt.Sprint("k", i)
			g, err := l.TryAcquire(t.Context(), req)
			nothing(t, err)
			all = append(all, backend.Renewal{Grant: g, TTL: 2 * ttl})
		}
		time.Sleep(time.Second)
		nothing(t, all[1].Grant.Release(t.Context()))
		_, err := l.Break(t.Context(), "k2", "")
		nothing(t, err)
		errs := l.RenewAll(t.Context(), all, batch{memory: m})
		for i, lost := range []bool{false, true, true, false} {
			if lost != errors.Is(errs[i], backend.ErrLost) || !lost && errs[i] != nil {
				t.Errorf("grant %d: lost %v, got %v", i, lost, errs[i])
			}
			if left := time.Until(all[i].Grant.Until()); !lost && left != 2*ttl {
				t.Errorf("grant %d: %v left, want %v", i, left, 2*ttl)
			}
		}
		m.failing(func(op string) error { // one renewal of this grant is under way
			if op == "write" {
				errs = l.RenewAll(t.Context(), all[:1], batch{memory: newMemory()})
			}
			return nil
		})
		nothing(t, all[0].Grant.Renew(t.Context(), ttl))
		if errs[0] == nil || errors.Is(errs[0], backend.ErrLost) || backend.OutcomeUnknown(errs[0]) {
			t.Errorf("a grant whose renewal is under way: want an error of a request that was not sent, got %v", errs[0])
		}
		m.failing(nil)
		errs = l.RenewAll(t.Context(), all[:1], batch{memory: m, readErr: errNoReply})
		if !errors.Is(errs[0], errNoReply) || backend.OutcomeUnknown(errs[0]) {
			t.Errorf("a read without a reply: got %v", errs[0])
		}
	})
}
