package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

var levels = []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"}

func levelVariable(s *provision.Server) string {
	if s.Flavour == provision.MariaDB10 {
		return "tx_isolation"
	}
	return "transaction_isolation"
}

// longTimeout is for statements that may wait, or meet many others.
var longTimeout = map[string]string{"timeout": "1m"}

func requestFor(key string) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: time.Minute}
}

func tryFor(t testing.TB, b backend.Backend, key string) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), requestFor(key))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// batchOf acquires n locks for a minute each, and returns renewals of them for an hour.
func batchOf(t testing.TB, b backend.Backend, prefix string, n int) []backend.Renewal {
	t.Helper()
	all := make([]backend.Renewal, n)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				g, err := b.TryAcquire(t.Context(), requestFor(fmt.Sprintf("%s%04d", prefix, i)))
				if err != nil {
					t.Error(err)
					return
				}
				all[i] = backend.Renewal{Grant: g, TTL: time.Hour}
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
	owner       string
	token, ends int64
	left        time.Duration
}

func rowsOf(t testing.TB, admin *sql.DB, prefix string) map[string]rowOf {
	t.Helper()
	rows, err := admin.Query("SELECT SUBSTRING(name,6), owner, token, expires, expires-"+serverNow+" FROM interlock WHERE name LIKE ?", "lock:"+prefix+"%")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]rowOf{}
	for rows.Next() {
		var name string
		var r rowOf
		if err := rows.Scan(&name, &r.owner, &r.token, &r.ends, &r.left); err != nil {
			t.Fatal(err)
		}
		r.left *= time.Microsecond
		all[name] = r
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRenewBatch renews 300 grants. Some were released, broken or expired, and some of those
// keys have another holder: just these are lost, and the rows of other holders do not change.
func TestRenewBatch(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		other := openRaw(t, s.URL())
		for l, level := range levels {
			for _, found := range []bool{false, true} {
				if found == (l%2 == 0) && level != "REPEATABLE-READ" {
					continue // each level once, and the default with both
				}
				t.Run(fmt.Sprintf("%s,clientFoundRows=%v", level, found), func(t *testing.T) {
					db := provision.MySQLPool(t, s, func(c *mysql.Config) {
						c.Params = map[string]string{levelVariable(s): "'" + level + "'"}
						c.ClientFoundRows = found
					})
					db.SetMaxOpenConns(8)
					b, err := mysqllock.New(db)
					if err != nil {
						t.Fatal(err)
					}
					prefix := fmt.Sprintf("b%d%v-", l, found)
					all := batchOf(t, b, prefix, 300)
					renewSome(t, admin, b, other, prefix, all)
				})
			}
		}
		mysqltest.NoDeadlocks(t, admin)
	})
}

func renewSome(t *testing.T, admin *sql.DB, b *mysqllock.Backend, other backend.Backend, prefix string, all []backend.Renewal) {
	lost := map[int]bool{}
	for i := range all {
		key := fmt.Sprintf("%s%04d", prefix, i)
		if i%2 == 1 {
			all[i].TTL = 2 * time.Hour
		}
		var err error
		switch lost[i] = true; i {
		case 3, 203:
			err = all[i].Grant.Release(t.Context())
		case 64, 65, 255, 256:
			_, err = other.(backend.Breaker).Break(t.Context(), key, "")
		case 106, 107, 299:
			_, err = admin.Exec("UPDATE interlock SET expires="+serverNow+"-1000000 WHERE name=?", []byte("lock:"+key))
		default:
			lost[i] = false
		}
		if err != nil {
			t.Fatal(err)
		}
		if i == 65 || i == 107 || i == 256 {
			tryFor(t, other, key)
		}
	}
	before := rowsOf(t, admin, prefix)
	begun := time.Now()
	errs := b.RenewBatch(t.Context(), all)
	took := time.Since(begun)
	after := rowsOf(t, admin, prefix)
	for i, r := range all {
		key := fmt.Sprintf("%s%04d", prefix, i)
		was, is := before[key], after[key]
		if lost[i] {
			if !errors.Is(errs[i], backend.ErrLost) || is.ends != was.ends || is.owner != was.owner || is.token != was.token {
				t.Errorf("%s was lost: want ErrLost and its row unchanged, got %v, %+v, was %+v", key, errs[i], is, was)
			}
			continue
		}
		if errs[i] != nil || is.left > r.TTL+time.Second || is.left < r.TTL-time.Minute {
			t.Errorf("%s: want it kept for %v, got %v, %v", key, r.TTL, is.left, errs[i])
		}
		if until := r.Grant.Until(); until.Before(begun.Add(r.TTL)) || until.After(begun.Add(r.TTL+took)) {
			t.Errorf("%s: want it trusted for %v from the request on, got %v", key, r.TTL, until.Sub(begun))
		}
	}
	for i := range all {
		all[i].TTL = time.Minute
	}
	errs = b.RenewBatch(t.Context(), all)
	for key, is := range rowsOf(t, admin, prefix) {
		if is.ends < after[key].ends || is.ends > after[key].ends+100 {
			t.Errorf("%s: a shorter renewal: want it to end at %v as before, got %v", key, after[key].ends, is.ends)
		}
	}
	for i, err := range errs {
		if lost[i] != errors.Is(err, backend.ErrLost) || !lost[i] && (err != nil || time.Until(all[i].Grant.Until()) > time.Minute) {
			t.Errorf("%d, lost: %v: the second renewal: got %v, trusted for %v", i, lost[i], err, time.Until(all[i].Grant.Until()))
		}
	}
}

// inRenewal returns the renewals, of one or of many, that the server executes.
func inRenewal(t *testing.T, admin *sql.DB) (all []thread) {
	for _, th := range threads(t, admin, "app") {
		if strings.Contains(th.query, "GREATEST") {
			all = append(all, th)
		}
	}
	return all
}

// TestBatchWaitsForNoRow renews while a transaction has locked some rows. The other locks are
// renewed at once, and these when the transaction ends, or not at all.
func TestBatchWaitsForNoRow(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, _ := withApp(t, s)
		for l, level := range levels {
			for _, ends := range []string{"the transaction", "the context"} {
				if t.Failed() {
					return // each takes long to fail
				}
				t.Run(level+"/"+ends, func(t *testing.T) {
					exec(t, admin, "SET GLOBAL "+levelVariable(s)+"='"+level+"'")
					b, prefix := openRaw(t, as(s, "app", "s3cret", longTimeout)).(*mysqllock.Backend), fmt.Sprintf("w%d%s-", l, ends[4:7])
					all := batchOf(t, b, prefix, 40)
					tx, err := admin.BeginTx(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = tx.Rollback() }()
					if _, err := tx.Exec("SELECT 1 FROM interlock WHERE name IN (?,?) LOCK IN SHARE MODE", []byte("lock:"+prefix+"0007"), []byte("lock:"+prefix+"0020")); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					done := make(chan []error, 1)
					go func() { done <- b.RenewBatch(ctx, all) }()
					eventually(t, "all but two renewed, and a wait for these", func() bool {
						renewed := 0
						for _, r := range rowsOf(t, admin, prefix) {
							if r.left > 30*time.Minute {
								renewed++
							}
						}
						waits := 0
						for _, th := range inRenewal(t, admin) {
							for _, n := range []int{7, 20} {
								if strings.Contains(th.query, fmt.Sprintf("name=X'%x'", fmt.Sprintf("lock:%s%04d", prefix, n))) {
									waits++
								}
							}
						}
						return renewed == 38 && waits == 2
					})
					if ends == "the context" {
						cancel()
					} else if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					for i, err := range <-done {
						locked, canceled := i == 7 || i == 20, ends == "the context"
						switch {
						case canceled && locked && (!errors.Is(err, backend.ErrUncertain) || !errors.Is(err, context.Canceled)):
							t.Errorf("%d: want the context's error, and that the outcome is unknown, got %v", i, err)
						case canceled && !locked && errors.Is(err, context.Canceled): // sent once more on its own
						case (!canceled || !locked) && err != nil:
							t.Errorf("%d: %v", i, err)
						}
					}
				})
			}
		}
		mysqltest.NoDeadlocks(t, admin)
	})
}

// queued calls Acquire in the background and returns when the attempt is in the queue.
func queued(t *testing.T, b backend.Backend, req backend.Request) <-chan backend.Grant {
	t.Helper()
	waits, got := make(chan struct{}, 1), make(chan backend.Grant, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		g, err := b.(backend.Waiter).Acquire(t.Context(), req)
		if err != nil {
			t.Error(err)
		}
		got <- g
	}()
	select {
	case <-waits:
	case <-time.After(bound):
		t.Errorf("not in the queue within %v", bound)
	}
	return got
}

// TestBatchesAmongOthers renews the even and the odd ones of neighbouring rows in two
// batches, again and again, while waiters come and go and some locks change holders.
func TestBatchesAmongOthers(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		for l, level := range levels {
			t.Run(level, func(t *testing.T) {
				exec(t, admin, "SET GLOBAL "+levelVariable(s)+"='"+level+"'")
				amongOthers(t, suite.WithParams(s.URL(), longTimeout), fmt.Sprintf("m%d-", l))
			})
		}
		mysqltest.NoDeadlocks(t, admin)
	})
}

func amongOthers(t *testing.T, url, prefix string) {
	const keys, moving = 60, 12 // every fifth lock changes holders
	b, other := openRaw(t, url), openRaw(t, url)
	var mu sync.Mutex
	all := batchOf(t, b, prefix, keys)
	key := func(i int) string { return fmt.Sprintf("%s%04d", prefix, i) }
	var traffic, batches sync.WaitGroup
	for m := range moving {
		traffic.Go(func() {
			i := 5 * m
			for range 3 {
				mu.Lock()
				g := all[i].Grant
				mu.Unlock()
				next := queued(t, b, requestFor(key(i)))
				if err := g.Release(t.Context()); err != nil && !suite.LeaseEnded(g, err) {
					t.Errorf("%s: %v", key(i), err)
				}
				g = <-next
				if g == nil {
					return
				}
				mu.Lock()
				all[i].Grant = g
				mu.Unlock()
			}
		})
		traffic.Go(func() { // a client that does not wait long, for a lock that is held all the time
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				req := requestFor(key(5*m + 1))
				req.OnWait = func(*backend.LockedError) { cancel() }
				if _, err := other.(backend.Waiter).Acquire(ctx, req); !errors.Is(err, context.Canceled) {
					t.Errorf("want it canceled, got %v", err)
				}
				if err := other.Abandon(t.Context(), req); err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	stop := make(chan struct{})
	for odd := range 2 {
		batches.Go(func() {
			for last := false; !last; {
				select {
				case <-stop:
					last = true // once more, without other requests
				default:
				}
				var mine []backend.Renewal
				mu.Lock()
				for i := odd; i < keys; i += 2 {
					mine = append(mine, all[i])
				}
				mu.Unlock()
				for j, err := range b.(backend.BatchRenewer).RenewBatch(t.Context(), mine) {
					if i := 2*j + odd; err != nil && !suite.LeaseEnded(mine[j].Grant, err) && (last || i%5 != 0 || !errors.Is(err, backend.ErrLost)) {
						t.Errorf("%s: %v", key(i), err)
					}
				}
			}
		})
	}
	traffic.Wait()
	close(stop)
	batches.Wait()
	for i, r := range all {
		if r.Grant == nil {
			continue
		}
		if err := r.Grant.Release(t.Context()); err != nil && !suite.LeaseEnded(r.Grant, err) {
			t.Errorf("%s: release: %v", key(i), err)
		}
	}
}
