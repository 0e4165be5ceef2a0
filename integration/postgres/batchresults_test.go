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
