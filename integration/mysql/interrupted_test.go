package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestInterrupted interrupts statements at random. Of each request that is answered without an error, the tables have all
// that it changed. An UPDATE or DELETE that is interrupted has no error on MariaDB.
func TestInterrupted(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON locks.* TO app@'%'")
		db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.User, c.Passwd = "app", "s3cret" })
		service, err := mysqllock.NewService(db, noEvents{}, mysqllock.WithNotify(false))
		if err != nil {
			t.Fatal(err)
		}
		defer service.Close(context.Background())
		in := interrupter{t: t, admin: admin, user: "app"}
		for n := range 200 {
			key := fmt.Sprint("k", n)
			permit := func() backend.Request {
				r := request(key, time.Minute)
				r.Share = backend.Share{Weight: 1, Capacity: 2}
				return r
			}
			all := []backend.Request{permit(), permit(), permit()} // the last one waits
			for _, r := range all {
				in.answered(func() error {
					_, err := service.Acquire(t.Context(), queue.Attempt{Request: r, Mode: queue.Join})
					return err
				})
			}
			for _, r := range all {
				hold := queue.Hold{Key: key, Owner: r.Owner, Share: r.Share, TTL: time.Hour}
				renew := func() error { return service.Renew(t.Context(), []queue.Hold{hold})[0].Err }
				if in.answered(renew) && left(t, admin, r.Owner) < time.Minute {
					t.Error("a renewal was answered, and the lease is as before")
				}
			}
			for _, r := range all {
				end := func() error { return service.End(t.Context(), []queue.End{{Request: r}})[0].Err }
				if in.answered(end) && count(t, admin, "interlock_places", "owner='"+r.Owner+"'") > 0 {
					t.Error("an end was answered, and the attempt has a place")
				}
			}
			for range 16 {
				r := request(key+" readers", time.Minute)
				r.Share.Weight = 1
				if _, err := service.Acquire(t.Context(), queue.Attempt{Request: r}); err != nil {
					t.Fatal(err)
				}
			}
			breakAll := func() error {
				return service.End(t.Context(), []queue.End{{Request: backend.Request{Key: key + " readers"}, Kind: queue.Break}})[0].Err
			}
			if in.answered(breakAll) && count(t, admin, "interlock_places", "name LIKE '%:"+key+" readers'") > 0 {
				t.Error("a break was answered, and the key has holders")
			}
			if n := count(t, admin, "interlock l", "name LIKE '%:"+key+`%' AND
				(shares<>(SELECT COUNT(*) FROM interlock_places p WHERE p.name=l.name AND ends>0) OR
				waiters<>(SELECT COUNT(*) FROM interlock_places p WHERE p.name=l.name AND ends=0))`); n > 0 {
				t.Error("the row of the key does not have its number of places")
			}
		}
		t.Logf("%d requests, %d of them were interrupted", in.requests, in.errors)
		if in.errors < in.requests/20 {
			t.Error("the test shows little")
		}
	})
}

// interrupter interrupts requests of a user, three of four at most.
type interrupter struct {
	t                *testing.T
	admin            *sql.DB
	user             string
	requests, errors int
	lately           time.Duration // how long a request took that was not interrupted
}

// answered executes a request, and reports whether it has no error.
func (i *interrupter) answered(request func() error) bool {
	var interrupted sync.WaitGroup
	begun := time.Now()
	interrupt := i.lately > 0 && rand.N(4) > 0
	if interrupt {
		conns := threads(i.t, i.admin, i.user)
		interrupted.Go(func() {
			time.Sleep(rand.N(i.lately)) // any moment of the request
			for _, c := range conns {
				_, _ = i.admin.Exec(fmt.Sprint("KILL QUERY ", c.id)) // it may have ended
			}
		})
	}
	err := request()
	interrupted.Wait()
	i.requests++
	switch {
	case err != nil:
		i.errors++
	case !interrupt:
		i.lately = time.Since(begun)
	}
	return err == nil
}

// left is how long a share holder still holds its key.
func left(t *testing.T, admin *sql.DB, owner string) time.Duration {
	t.Helper()
	var n int64
	q := "SELECT COALESCE(MAX(ends - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), 0) FROM interlock_places WHERE owner=?"
	if err := admin.QueryRow(q, owner).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Microsecond
}
