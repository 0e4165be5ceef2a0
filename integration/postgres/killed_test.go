package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/pglock"
)

// TestKilledWithinStatement ends the connection, or the call, while the server executes
// a statement, which waits for a row that another transaction has locked.
func TestKilledWithinStatement(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil, "pool_size", "2", "application_name", "victim"))
	kill := func(cancel context.CancelFunc) {
		sql(t, admin, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event_type = 'Lock'")
	}
	cut := func(cancel context.CancelFunc) { cancel() }
	for how, end := range map[string]func(context.CancelFunc){"killed": kill, "cut": cut} {
		for i, step := range []string{"TryAcquire", "Acquire", "Renew", "Keep", "Downgrade", "Release", "Abandon", "Break"} {
			t.Run(how+" in "+step, func(t *testing.T) {
				key := fmt.Sprint(how, i)
				req := request(key, time.Hour)
				g, err := b.TryAcquire(t.Context(), req)
				must(t, err)
				other := request(key, time.Hour)
				acquire := step == "TryAcquire" || step == "Acquire"
				if acquire { // the statement must reach the row
					must(t, g.Release(t.Context()))
				}
				row, err := admin.Begin(t.Context())
				must(t, err)
				_, err = row.Exec(t.Context(), "SELECT FROM interlock WHERE name = $1 FOR UPDATE", pglock.Key(pglock.DefaultPrefix, key))
				must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() {
					var err error
					switch step {
					case "TryAcquire":
						_, err = b.TryAcquire(ctx, other)
					case "Acquire":
						_, err = b.Acquire(ctx, other)
					case "Renew":
						err = g.Renew(ctx, time.Hour)
					case "Keep":
						err = g.(backend.Keeper).Keep(ctx, time.Hour)
					case "Downgrade":
						err = g.(backend.Downgrader).Downgrade(ctx)
					case "Release":
						err = g.Release(ctx)
					case "Abandon":
						err = b.Abandon(ctx, req)
					case "Break":
						_, err = b.Break(ctx, key, "")
					}
					done <- err
				}()
				must(t, eventually(func() error { return blocked(admin, 1) }))
				end(cancel)
				err = <-done
				if !errors.Is(err, backend.ErrUncertain) {
					t.Errorf("want ErrUncertain, got %v", err)
				}
				must(t, row.Rollback(t.Context()))
				// the server may still execute the statement
				must(t, eventually(func() error { return blocked(admin, 0) }))
				if acquire {
					must(t, b.Abandon(t.Context(), other))
				}
				noneLeft(t, b, admin)
				after, err := b.TryAcquire(t.Context(), request(key, time.Hour))
				switch info, ierr := b.Inspect(t.Context(), key); {
				case ierr != nil:
					t.Error(ierr)
				case acquire && err != nil:
					t.Errorf("after an abandoned attempt: want the key free, got %v", err)
				case acquire:
					must(t, after.Release(t.Context()))
				case err == nil && step != "Release" && step != "Abandon" && step != "Break":
					t.Errorf("want the key held as before, it was granted")
				case errors.Is(err, backend.ErrLocked) && info.Holder.Owner != req.Owner:
					t.Errorf("want the key held by %s, got %+v", req.Owner, info.Holder)
				case err != nil && !errors.Is(err, backend.ErrLocked):
					t.Error(err)
				}
			})
		}
	}
}

// blocked returns an error unless that many statements of the driver wait for a row.
func blocked(admin *pgxpool.Pool, want int) error {
	var n int
	err := admin.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event_type = 'Lock'").Scan(&n)
	if err == nil && n != want {
		err = fmt.Errorf("%d statements wait for a row, want %d", n, want)
	}
	return err
}

// noneLeft checks that no connection of the driver is in a transaction or holds a lock.
func noneLeft(t *testing.T, b *pglock.Backend, admin *pgxpool.Pool) {
	t.Helper()
	for range 4 { // each connection of the pool works
		must(t, b.Ping(t.Context()))
	}
	must(t, eventually(func() error {
		var inside, locks int
		err := admin.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE state <> 'idle'), count(l.pid)
			FROM pg_stat_activity a LEFT JOIN pg_locks l USING (pid) WHERE application_name = 'victim'`).Scan(&inside, &locks)
		if err == nil && inside+locks > 0 {
			err = fmt.Errorf("%d connections in a transaction, %d locks", inside, locks)
		}
		return err
	}))
}
