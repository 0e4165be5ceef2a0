package mysql_test

import (
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestRowsDeleted: rows of a lock are deleted by hand, or are not on the server of a failover. The holder loses the
// lock, and its waiters are served, also beside later ones.
func TestRowsDeleted(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		for what, tables := range map[string][]string{
			"all": {"interlock", "interlock_places"}, "that of the lock": {"interlock"}, "those of the waiters": {"interlock_places"},
		} {
			for kind, wait := range map[string]func(*testing.T, *lock.Client, string, int) <-chan *lock.Lease{"writers": waitingWriter, "readers": waitingReader} {
				t.Run(what+"/"+kind, func(t *testing.T) {
					t.Parallel()
					a, b, c := open(t, s.URL()), open(t, s.URL()), open(t, s.URL())
					name := what + "/" + kind
					held, err := a.Mutex(name, short).Lock(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					waiters := []<-chan *lock.Lease{wait(t, b, name, 1), wait(t, c, name, 2)}
					key := mysqllock.Key(mysqllock.DefaultPrefix, name)
					for _, table := range tables {
						if _, err := admin.Exec("DELETE FROM "+table+" WHERE name=?", []byte(key)); err != nil {
							t.Fatal(err)
						}
					}
					_ = held.Check(t.Context()) // it finds out that it has lost the lock
					_ = held.Unlock(t.Context())
					waiters = append(waiters, wait(t, a, name, 0), waitingWriter(t, b, name, 0))
					for len(waiters) > 0 { // in any order
						var l *lock.Lease
						eventually(t, "the next grant", func() bool {
							for i, w := range waiters {
								select {
								case l = <-w:
									waiters = append(waiters[:i], waiters[i+1:]...)
									return true
								default:
								}
							}
							return false
						})
						if l == nil {
							t.FailNow()
						}
						if err := l.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	})
}

// short is the lease of the holder and the waiters: they ask when it would have ended.
var short = lock.WithTTL(3 * time.Second)

func waitingWriter(t *testing.T, c *lock.Client, name string, place int) <-chan *lock.Lease {
	return waitingFor(t, c, name, place, c.Mutex(name, short).Lock)
}

func waitingReader(t *testing.T, c *lock.Client, name string, place int) <-chan *lock.Lease {
	return waitingFor(t, c, name, place, c.RWMutex(name, short).RLock)
}

// TestHolderRemoved: a row loses its holder by hand. The next attempt does not overtake the one that waits.
func TestHolderRemoved(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		service, held := holds(t, s, &gate{}, 1)
		key := held[0].Key
		ask := func(r backend.Request, mode queue.Mode) bool {
			a, err := service.Acquire(t.Context(), queue.Attempt{Request: r, Mode: mode})
			if err != nil {
				t.Fatal(err)
			}
			return a.Granted
		}
		waiter := request(key, time.Hour)
		if ask(waiter, queue.Join) {
			t.Fatal("a key that is held was granted")
		}
		exec(t, provision.MySQLPool(t, s, nil), "UPDATE interlock SET owner = NULL WHERE name = 'lock:"+key+"'")
		if ask(request(key, time.Hour), queue.NoQueue) {
			t.Error("a later attempt was granted before the one that waits")
		}
		if !ask(waiter, queue.Join) {
			t.Error("the one that waits was not granted")
		}
	})
}
