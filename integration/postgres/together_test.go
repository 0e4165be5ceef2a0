package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/pglock"
)

// TestTogether: requests for different locks that are made at the same time share a statement, and none waits for a row
// that another transaction has locked for another one.
func TestTogether(t *testing.T) {
	s, admin := server(t)
	for i, level := range levels {
		t.Run(level, func(t *testing.T) {
			setLevel(t.Context(), t, admin, level)
			b, err := pglock.New(poolOf(t, pgtest.With(s, nil, "application_name", "victim"), 4))
			must(t, err)
			t.Cleanup(func() { _ = b.Close(context.Background()) })
			const n = 40
			key := func(k string) string { return fmt.Sprintf("together%d-%s", i, k) }
			lockRow := func(k string) (unlock func()) {
				g, err := b.TryAcquire(t.Context(), request(key(k), time.Minute))
				must(t, err)
				must(t, g.Release(t.Context()))
				tx, err := admin.Begin(t.Context())
				must(t, err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				_, err = tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = $1 FOR UPDATE", []byte("lock:"+key(k)))
				must(t, err)
				return func() { must(t, tx.Rollback(t.Context())) }
			}
			unlockFirst, unlockOther := lockRow("first"), lockRow("other")
			var grants sync.Map
			var refusals atomic.Int32
			acquire := func(k string) {
				switch g, err := b.TryAcquire(t.Context(), request(key(k), time.Minute)); {
				case errors.Is(err, backend.ErrLocked):
					refusals.Add(1)
				case err != nil:
					t.Error(err)
				default:
					grants.Store(k, g)
				}
			}
			before, err := pgtest.Commands(t.Context(), admin)
			must(t, err)
			var blockedOnes, others sync.WaitGroup
			blockedOnes.Go(func() { acquire("first") })
			must(t, eventually(func() error { return blocked(admin, 1) }))
			blockedOnes.Go(func() { acquire("other") })
			for i := range n {
				others.Go(func() { acquire(fmt.Sprint(i)) })
			}
			others.Go(func() { acquire("0") }) // one of two
			others.Wait()
			unlockFirst()
			unlockOther()
			blockedOnes.Wait()
			var all []backend.Grant
			for _, g := range grants.Range {
				all = append(all, g.(backend.Grant))
			}
			if len(all) != n+2 || refusals.Load() != 1 {
				t.Fatalf("want %d grants and 1 refusal, got %d and %d", n+2, len(all), refusals.Load())
			}
			released := make(chan error, len(all))
			for _, g := range all {
				go func() { released <- g.Release(t.Context()) }()
			}
			for range all {
				must(t, <-released)
			}
			after, err := pgtest.Commands(t.Context(), admin)
			must(t, err)
			if statements := int(after - before); statements > n {
				t.Errorf("%d locks and unlocks took %d statements, want them to share statements", n+2, statements)
			}
		})
	}
}

// TestEndsTogetherAreOnDisk: the commit of several ends waits for the disk if one of them grants the lock to a waiter.
func TestEndsTogetherAreOnDisk(t *testing.T) {
	s := newStage(t)
	other := s.beside(t, "other")
	for _, setting := range []string{"on", "off", "remote_apply"} {
		for _, grants := range []bool{false, true} {
			tx := s.begin()
			_, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = '"+setting+"'")
			must(t, err)
			held, freed := s.acquireIn(tx), other.acquireIn(tx)
			if grants {
				s.enqueue(tx, noProcess, backend.Share{})
			}
			_, err = tx.Exec(t.Context(), "SET LOCAL synchronous_commit = '"+setting+"'") // the grants have changed it
			must(t, err)
			s.call(tx, "end_many", []string{"end", "end"}, [][]byte{s.name(), other.name()}, []string{held, freed}, noProcess,
				[]bool{false, false}, []string{"", ""})
			want := "off"
			if grants {
				want = setting
				if setting == "off" {
					want = "on"
				}
			}
			var got string
			must(t, tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got))
			if got != want {
				t.Errorf("synchronous_commit=%s, grants: %t: want the commit with %s, got %s", setting, grants, want, got)
			}
			must(t, tx.Rollback(t.Context()))
		}
	}
}

// acquireIn takes the lock in a transaction, and returns the owner.
func (s *stage) acquireIn(tx conn) (owner string) {
	s.Helper()
	req := s.share(backend.Share{})
	if status := s.call(tx, "acquire", s.name(), req.Owner, noProcess, "x", req.TTL.Microseconds(), 0, 0, false,
		strings.Repeat("0", 32), true); status != "granted" {
		s.Fatalf("acquire: %s", status)
	}
	return req.Owner
}
