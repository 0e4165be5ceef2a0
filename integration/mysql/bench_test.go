package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// delay is the delay in each direction. A round trip takes 40 ms, far more than all else.
const delay = 20 * time.Millisecond

const benchClients = 4

// side is one of the locks that are compared. lock acquires the key for one of its clients.
type side struct {
	name string
	lock func(ctx context.Context, client int, key string) (unlock func() error, err error)
}

// ours uses the driver.
func ours(b *testing.B, name, addr string, params map[string]string) side {
	var clients []*lock.Client
	for range benchClients {
		c, err := lock.Open(b.Context(), suite.WithParams("mysql://root@"+addr+"/"+provision.MySQLDatabase, params))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close(context.Background()) })
		clients = append(clients, c)
	}
	return side{name, func(ctx context.Context, i int, key string) (func() error, error) {
		l, err := clients[i].Mutex(key).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Unlock(context.Background()) }, nil
	}}
}

// pools returns the pools of another side, with a connection for each waiter.
func pools(b *testing.B, s *provision.Server, addr string) []*sql.DB {
	var dbs []*sql.DB
	for range benchClients {
		db := provision.MySQLPool(b, s, func(c *mysql.Config) { c.Addr, c.InterpolateParams = addr, true })
		db.SetMaxIdleConns(70)
		dbs = append(dbs, db)
	}
	return dbs
}

// polling is a row with an expiry that waiters request every 10 ms.
func polling(b *testing.B, s *provision.Server, addr string) side {
	dbs := pools(b, s, addr)
	if _, err := dbs[0].Exec("CREATE TABLE polled (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(32) NOT NULL, expires BIGINT NOT NULL)"); err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	return side{"poll-10ms", func(ctx context.Context, i int, key string) (func() error, error) {
		mu.Lock()
		n++
		id := strconv.Itoa(n)
		mu.Unlock()
		const now = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"
		for {
			r, err := dbs[i].ExecContext(ctx, "INSERT INTO polled VALUES (?,?,"+now+"+10000000) ON DUPLICATE KEY UPDATE owner=IF(expires<="+now+",?,owner), expires=IF(owner=?,"+now+"+10000000,expires)", key, id, id, id)
			if err != nil {
				return nil, err
			}
			if changed, _ := r.RowsAffected(); changed > 0 {
				break
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return func() error {
			_, err := dbs[i].Exec("UPDATE polled SET expires=0 WHERE name=? AND owner=?", key, id)
			return err
		}, nil
	}}
}

// session is GET_LOCK as the lock itself: a connection for each holder and waiter,
// no expiry, no token.
func session(b *testing.B, s *provision.Server, addr string) side {
	dbs := pools(b, s, addr)
	return side{"session-GET_LOCK", func(ctx context.Context, i int, key string) (func() error, error) {
		c, err := dbs[i].Conn(ctx)
		if err != nil {
			return nil, err
		}
		var got sql.NullInt64
		if err := c.QueryRowContext(ctx, "SELECT GET_LOCK(?,60)", key).Scan(&got); err != nil || got.Int64 != 1 {
			_ = c.Close()
			return nil, fmt.Errorf("GET_LOCK: %v, %w", got, err)
		}
		return func() error {
			_, err := c.ExecContext(context.Background(), "DO RELEASE_LOCK(?)", key)
			_ = c.Close()
			return err
		}, nil
	}}
}

// BenchmarkRoundTrips reports the round trips of a lock and its unlock on a free key
// (p50-rtt). With 16 and 64 waiters it reports the round trips from an unlock to the return
// of the next holder's lock (p50-rtt, p99-rtt), and the statements of such a cycle.
func BenchmarkRoundTrips(b *testing.B) {
	flavours, waiting := provision.MySQLFlavours(), []int{16, 64}
	if testing.Short() { // only checks that it works
		flavours, waiting = flavours[:1], []int{4}
	}
	for _, flavour := range flavours {
		b.Run(flavour, func(b *testing.B) {
			s := provision.NewMySQL(b, flavour, provision.Options{})
			p := provision.NewProxy(b, s.Addr())
			admin := provision.MySQLPool(b, s, nil)
			sides := []side{
				ours(b, "notify", p.Addr(), nil), ours(b, "poll", p.Addr(), map[string]string{"notify": "off"}),
				polling(b, s, p.Addr()), session(b, s, p.Addr()),
			}
			for _, sd := range sides { // opens connections and creates rows
				for i := range benchClients {
					unlock, err := sd.lock(b.Context(), i, "warm")
					if err == nil {
						err = unlock()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			p.Delay(delay)
			defer p.Delay(0)
			for _, sd := range sides {
				b.Run("uncontended/"+sd.name, func(b *testing.B) {
					var all []time.Duration
					for b.Loop() {
						start := time.Now()
						unlock, err := sd.lock(b.Context(), 0, "warm")
						if err == nil {
							err = unlock()
						}
						if err != nil {
							b.Fatal(err)
						}
						all = append(all, time.Since(start))
					}
					report(b, all)
				})
				for _, n := range waiting {
					b.Run("hand-off/"+strconv.Itoa(n)+"/"+sd.name, func(b *testing.B) { handOff(b, admin, sd, n) })
				}
			}
		})
	}
}

// handOff keeps n waiters and measures b.N hand-offs between different waiters.
func handOff(b *testing.B, admin *sql.DB, sd side, n int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var (
		mu       sync.Mutex
		released time.Time
		last     = -1
		cycles   int
		gaps     []time.Duration
		full     = make(chan struct{}) // all waiters are in the queue
		enough   = make(chan struct{})
		wg       sync.WaitGroup
	)
	want := max(b.N, 3*n)
	for i := range n + 1 {
		wg.Go(func() {
			for ctx.Err() == nil {
				unlock, err := sd.lock(ctx, i%benchClients, fmt.Sprintf("hand-off-%d-%d", n, b.N))
				at := time.Now()
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				mu.Lock()
				cycles++
				if last >= 0 && last != i {
					gaps = append(gaps, at.Sub(released))
				}
				switch len(gaps) {
				case n:
					close(full)
					gaps = append(gaps, 0)
				case n + want:
					close(enough)
					gaps = append(gaps, 0)
				}
				mu.Unlock()
				time.Sleep(time.Millisecond) // the work
				mu.Lock()
				last, released = i, time.Now()
				mu.Unlock()
				if err := unlock(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	count := func() (int64, int) {
		mu.Lock()
		defer mu.Unlock()
		sent, err := mysqltest.Statements(context.Background(), admin)
		if err != nil {
			b.Error(err)
		}
		return sent, cycles
	}
	<-full
	sent, done := count()
	b.ResetTimer()
	<-enough
	b.StopTimer()
	moreSent, moreDone := count()
	cancel()
	wg.Wait()
	report(b, gaps[n+1:n+want])
	b.ReportMetric(float64(moreSent-sent)/float64(moreDone-done), "statements/cycle")
}

func report(b *testing.B, all []time.Duration) {
	slices.Sort(all)
	rtt := float64(2 * delay)
	b.ReportMetric(float64(all[len(all)/2])/rtt, "p50-rtt")
	b.ReportMetric(float64(all[len(all)*99/100])/rtt, "p99-rtt")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle reports how many statements a process sends in 30 s while it waits for a lock
// that is held and renewed, for some TTLs at once.
func BenchmarkIdle(b *testing.B) {
	reads, ttls := 3, []time.Duration{3 * time.Second, 30 * time.Second, time.Minute, 75 * time.Second, 5 * time.Minute}
	if testing.Short() { // only checks that it works
		reads, ttls = 1, ttls[:1]
	}
	var wg sync.WaitGroup
	for _, ttl := range ttls {
		s := provision.NewMySQL(b, provision.MySQLFlavours()[0], provision.Options{})
		admin := provision.MySQLPool(b, s, nil)
		holder, waiter := ours(b, "holder", s.Addr(), map[string]string{"ttl": ttl.String()}), ours(b, "waiter", s.Addr(), nil)
		unlock, err := holder.lock(b.Context(), 0, "idle")
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = waiter.lock(ctx, 0, "idle") })
		wg.Go(func() {
			defer cancel()
			var began []time.Time // each read, after those that entered the queue
			var sent []int64      // before that
			var last time.Time
			for before := int64(0); len(began) < reads+3; time.Sleep(20 * time.Millisecond) {
				var name string
				var now int64
				// a renewal is no SELECT, and a wait is counted when it begins
				if err := admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_select'").Scan(&name, &now); err != nil {
					b.Error(err)
					return
				}
				if now == before {
					continue
				}
				if time.Since(last) > time.Second { // else the second half of it
					began, sent = append(began, time.Now()), append(sent, before)
				}
				before, last = now, time.Now()
			}
			b.ReportMetric(float64(sent[reads+2]-sent[2])/began[reads+1].Sub(began[1]).Seconds()*30, fmt.Sprintf("TTL-%v/30s", ttl))
			cancel()
			waiting.Wait()
			if err := unlock(); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(0, "ns/op")
}
