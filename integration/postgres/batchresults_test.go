package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
)

// TestBatchOfShortLease: a batch with locked rows returns while the shortest of its leases is still valid.
func TestBatchOfShortLease(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil, "application_name", "victim"))
	all := batchOf(t, b, "s", 40, time.Hour)
	all[11].TTL = 8 * time.Second
	tx, err := admin.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = 'lock:s007' FOR SHARE")
	must(t, err)
	begun := time.Now()
	for i, err := range b.RenewBatch(t.Context(), all) {
		if i == 7 != errors.Is(err, backend.ErrUncertain) || i != 7 && err != nil {
			t.Errorf("%d: locked: %v, got %v", i, i == 7, err)
		}
	}
	if took := time.Since(begun); took >= all[11].TTL/2 {
		t.Errorf("the results came after %v, at a lease of %v", took, all[11].TTL)
	}
}

// TestMixedBatch: one statement renews exclusive holders, readers, permits and a writer that became a reader. It renews
// neither a share that has expired nor a lock that was released.
func TestMixedBatch(t *testing.T) {
	s := newStage(t)
	one, lost, two := s.tryShare(backend.Reader), s.tryShare(backend.Reader), s.tryShare(backend.Reader)
	holders, _ := s.info()
	s.expire(holders[1])
	permits, writer := s.beside(t, "permits"), s.beside(t, "writer")
	free, down := s.beside(t, "free").try(), s.beside(t, "down")
	must(t, free.Release(t.Context()))
	reader := down.try()
	must(t, reader.(backend.Downgrader).Downgrade(t.Context()))
	var all []backend.Renewal
	some := permits.tryShare(backend.Share{Weight: 2, Capacity: 3})
	for i, g := range []backend.Grant{one, lost, writer.try(), some, free, reader, two} {
		all = append(all, backend.Renewal{Grant: g, TTL: time.Duration(3+i) * time.Hour})
	}
	before, err := pgtest.Commands(t.Context(), s.admin)
	must(t, err)
	for i, err := range s.b.RenewBatch(t.Context(), all) {
		if want := all[i].Grant == lost || all[i].Grant == free; want != errors.Is(err, backend.ErrLost) || !want && err != nil {
			t.Errorf("renewal %d: want it lost: %v, got %v", i, want, err)
		}
	}
	after, err := pgtest.Commands(t.Context(), s.admin)
	must(t, err)
	if n := after - before; n != 1 {
		t.Errorf("want one statement, got %d", n)
	}
	for i, at := range map[int]*stage{0: s, 2: writer, 3: permits, 5: down} {
		info, err := s.b.Inspect(t.Context(), at.key)
		must(t, err)
		if h := info.Holder; h == nil || h.Token != all[i].Grant.Token() || h.Left < all[i].TTL-time.Minute || h.Left > all[i].TTL {
			t.Errorf("renewal %d: want the holder to have token %d and %v left, got %+v", i, all[i].Grant.Token(), all[i].TTL, h)
		}
	}
}
