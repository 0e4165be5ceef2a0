package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

var levels = []string{"read committed", "repeatable read", "serializable"}

// batchOf takes n locks for a minute each and returns their renewals.
func batchOf(t testing.TB, b *pglock.Backend, prefix string, n int, ttl time.Duration) []backend.Renewal {
	t.Helper()
	all := make([]backend.Renewal, n)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				g, err := b.TryAcquire(t.Context(), request(fmt.Sprintf("%s%03d", prefix, i), time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = backend.Renewal{Grant: g, TTL: ttl}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// rowOf is a row of the lock table.
type rowOf struct {
	owner string
	token int64
	left  time.Duration
	ends  int64
}

func rowsOf(t testing.TB, admin *pgxpool.Pool, prefix string) map[string]rowOf {
	t.Helper()
	rows, err := admin.Query(t.Context(), `SELECT convert_from(substr(name, 6), 'UTF8'), coalesce(owner, ''), token, expires,
		expires - (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM interlock WHERE name LIKE $1`, []byte("lock:"+prefix+"%"))
	must(t, err)
	defer rows.Close()
	all := map[string]rowOf{}
	for rows.Next() {
		var name string
		var r rowOf
		var left int64
		must(t, rows.Scan(&name, &r.owner, &r.token, &r.ends, &left))
		r.left = time.Duration(left) * time.Microsecond
		all[name] = r
	}
	must(t, rows.Err())
	return all
}

// TestRenewBatch renews 300 grants. Some were released, broken or have expired, and some
// of those keys were granted to other clients: only these renewals return ErrLost, and
// the rows of other clients do not change.
func TestRenewBatch(t *testing.T) {
	s, admin := server(t)
	for i, level := range levels {
		for j, listen := range []string{"true", "false"} { // false: no prepared statements
			t.Run(fmt.Sprintf("%s, listen=%s", level, listen), func(t *testing.T) {
				setLevel(t.Context(), t, admin, level)
				b, other, prefix := open(t, pgtest.With(s, nil, "timeout", "1m", "listen", listen)), open(t, pgtest.With(s, nil, "timeout", "1m")), fmt.Sprintf("b%d%d-", i, j)
				all := batchOf(t, b, prefix, 300, time.Hour)
				lost := map[int]bool{}
				for i := range all {
					key := fmt.Sprintf("%s%03d", prefix, i)
					if i%2 == 1 {
						all[i].TTL = 2 * time.Hour
					}
					switch lost[i] = true; i % 30 {
					case 3:
						must(t, all[i].Grant.Release(t.Context()))
					case 4, 5:
						_, err := other.Break(t.Context(), key, "")
						must(t, err)
					case 6, 7:
						_, err := admin.Exec(t.Context(), "UPDATE interlock SET expires = "+past+" WHERE name = $1", []byte("lock:"+key))
						must(t, err)
					default:
						lost[i] = false
					}
					if i%30 == 5 || i%30 == 7 {
						_, err := other.TryAcquire(t.Context(), request(key, time.Minute))
						must(t, err)
					}
				}
				before := rowsOf(t, admin, prefix)
				statements, err := pgtest.Commands(t.Context(), admin)
				must(t, err)
				begun := time.Now()
				errs := b.RenewBatch(t.Context(), all)
				took := time.Since(begun)
				after := rowsOf(t, admin, prefix)
				for i, r := range all {
					key := fmt.Sprintf("%s%03d", prefix, i)
					was, is := before[key], after[key]
					if lost[i] {
						if i%30 == 6 {
							was.owner = "" // each operation removes a holder that has expired
						}
						if !errors.Is(errs[i], backend.ErrLost) || is.ends != was.ends || is.owner != was.owner || is.token != was.token {
							t.Errorf("%s is lost: want ErrLost and its row unchanged, got %v, %+v, was %+v", key, errs[i], is, was)
						}
						continue
					}
					if errs[i] != nil || is.left > r.TTL || is.left < r.TTL-time.Minute {
						t.Errorf("%s: want it kept for %v, got %v, %v", key, r.TTL, is.left, errs[i])
					}
					if until := r.Grant.Until(); until.Before(begun.Add(r.TTL)) || until.After(begun.Add(r.TTL+took)) {
						t.Errorf("%s: want it trusted for %v from the request, got %v", key, r.TTL, until.Sub(begun))
					}
				}
				now, err := pgtest.Commands(t.Context(), admin)
				must(t, err)
				if n := int(now - statements); n != 1 {
					t.Errorf("want one statement, got %d", n)
				}

				for i := range all {
					all[i].TTL = time.Minute
				}
				errs = b.RenewBatch(t.Context(), all)
				for key, is := range rowsOf(t, admin, prefix) {
					if is.ends != after[key].ends {
						t.Errorf("%s: a shorter renewal: want it to end at %d as before, got %d", key, after[key].ends, is.ends)
					}
				}
				for i, err := range errs {
					if lost[i] != errors.Is(err, backend.ErrLost) || !lost[i] && (err != nil || time.Until(all[i].Grant.Until()) > time.Minute) {
						t.Errorf("%d, lost: %v: the second renewal: got %v, trusted for %v", i, lost[i], err, time.Until(all[i].Grant.Until()))
					}
				}
			})
		}
	}
}

// TestBatchWaitsForNoRow: another transaction has locked some rows. The other locks are
// renewed at once, and these when the transaction ends, or not at all.
func TestBatchWaitsForNoRow(t *testing.T) {
	s, admin := server(t)
	for i, level := range levels {
		for _, ends := range []string{"the transaction", "the context"} {
			if t.Failed() {
				return // each takes long to fail
			}
			t.Run(level+"/"+ends, func(t *testing.T) {
				setLevel(t.Context(), t, admin, level)
				b, prefix := open(t, pgtest.With(s, nil, "timeout", "1m", "application_name", "victim")), fmt.Sprintf("w%d%s-", i, ends[4:7])
				all := batchOf(t, b, prefix, 40, time.Hour)
				tx, err := admin.Begin(t.Context())
				must(t, err)
				defer func() { _ = tx.Rollback(context.Background()) }()
				_, err = tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = $1 OR name = $2 FOR SHARE", []byte("lock:"+prefix+"007"), []byte("lock:"+prefix+"020"))
				must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan []error, 1)
				go func() { done <- b.RenewBatch(ctx, all) }()
				must(t, eventually(func() error { return blocked(admin, 2) }))
				renewed := 0
				for _, r := range rowsOf(t, admin, prefix) {
					if r.left > 30*time.Minute {
						renewed++
					}
				}
				if renewed != 38 {
					t.Errorf("want 38 renewed while two rows are locked, got %d", renewed)
				}
				if ends == "the context" {
					cancel()
				} else {
					must(t, tx.Commit(t.Context()))
				}
				for i, err := range <-done {
					switch locked := ends == "the context" && (i == 7 || i == 20); {
					case locked && (!errors.Is(err, backend.ErrUncertain) || !errors.Is(err, context.Canceled)):
						t.Errorf("%d: want ErrUncertain with the error of the context, got %v", i, err)
					case !locked && err != nil:
						t.Errorf("%d: %v", i, err)
					}
				}
			})
		}
	}
}

// TestBatchWithoutReply: the outcome of all renewals is unknown, and the next batch
// renews.
func TestBatchWithoutReply(t *testing.T) {
	s, admin := server(t)
	p := provision.NewProxy(t, s.Addr())
	b := open(t, strings.Replace(pgtest.With(s, nil, "timeout", "1m", "application_name", "victim"), s.Addr(), p.Addr(), 1))
	for _, how := range []string{"killed", "cut", "executed"} {
		t.Run(how, func(t *testing.T) {
			all := batchOf(t, b, how, 40, time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan []error, 1)
			renew := func() { done <- b.RenewBatch(ctx, all) }
			if how == "executed" {
				var owner string
				must(t, admin.QueryRow(t.Context(), "SELECT owner FROM interlock WHERE name = 'lock:executed005'").Scan(&owner))
				p.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte(owner)) })
				go renew()
			} else {
				table, err := admin.Begin(t.Context())
				must(t, err)
				defer func() { _ = table.Rollback(context.Background()) }()
				_, err = table.Exec(t.Context(), "LOCK TABLE interlock IN EXCLUSIVE MODE")
				must(t, err)
				go renew()
				must(t, eventually(func() error { return blocked(admin, 1) }))
				if how == "killed" {
					sql(t, admin, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event_type = 'Lock'")
				} else {
					cancel()
				}
				defer func() { must(t, eventually(func() error { return blocked(admin, 0) })) }()
			}
			for i, err := range <-done {
				if !errors.Is(err, backend.ErrUncertain) || how == "cut" && !errors.Is(err, context.Canceled) {
					t.Errorf("%d: want ErrUncertain, got %v", i, err)
				}
			}
			for name, r := range rowsOf(t, admin, how) {
				if executed := r.left > 30*time.Minute; executed != (how == "executed") {
					t.Errorf("%s: renewed: %v", name, executed)
				}
			}
		})
	}
	for _, how := range []string{"killed", "cut", "executed"} {
		noneLeft(t, b, admin)
		for i, err := range b.RenewBatch(t.Context(), batchOf(t, b, how+"-next", 40, time.Hour)) {
			if err != nil {
				t.Errorf("%d: the next batch: %v", i, err)
			}
		}
	}
}
