package mysql_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/provision"
)

const micros = "TIMESTAMPDIFF(MICROSECOND, '2020-01-01', SYSDATE(6))"

// TestWakeWhileReading: a KILL QUERY that comes while listen looks for events, before it sleeps, ends the sleep.
func TestWakeWhileReading(t *testing.T) {
	const rounds, sleep = 2000, 5 * time.Millisecond
	each(t, func(t *testing.T, s *provision.Server) {
		open(t, s.URL()) // creates the procedures
		admin := provision.MySQLPool(t, s, nil)
		listener, err := admin.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		other, err := admin.Conn(t.Context()) // owns what the listener waits for on MariaDB
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		var id, owns int64
		if err := listener.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if err := other.QueryRowContext(t.Context(), "SELECT GET_LOCK('interlock.l.sleep', 0)").Scan(&owns); err != nil {
			t.Fatal(err)
		}
		var listen string
		if err := admin.QueryRow("SELECT routine_name FROM " + procedures + " WHERE routine_name LIKE 'interlock_listen%'").Scan(&listen); err != nil {
			t.Fatal(err)
		}
		const begin = "BEGIN DECLARE begun BIGINT DEFAULT " + micros + ";"
		exec(t, admin,
			fmt.Sprintf("CREATE PROCEDURE listens() %s CALL %s('l', '', FALSE, %v, %t); SELECT begun; END",
				begin, listen, sleep.Seconds(), s.Flavour != provision.MySQL9),
			fmt.Sprintf("CREATE PROCEDURE wakes() %s KILL QUERY %d; SELECT begun, %s; END", begin, id, micros))
		woken, slept := 0, 0
		for range rounds {
			begun := make(chan int64, 1) // when a whole sleep began; closed if there was none
			go func() {
				defer close(begun)
				rows, err := listener.QueryContext(t.Context(), "CALL listens()")
				if err != nil {
					return
				}
				defer rows.Close()
				var at int64
				var slept int
				for more := true; more; more = rows.NextResultSet() { // whether it listens, the events, and the begin
					for rows.Next() {
						switch columns, _ := rows.Columns(); len(columns) {
						case 1:
							_ = rows.Scan(&at)
						case 2:
							_ = rows.Scan(&slept, new(sql.NullBool))
						}
					}
				}
				if rows.Err() == nil && slept > 0 {
					begun <- at
				}
			}()
			for end := time.Now().Add(rand.N(400 * time.Microsecond)); time.Now().Before(end); { // shorter than a sleep can be
			}
			var from, to int64
			if err := admin.QueryRowContext(t.Context(), "CALL wakes()").Scan(&from, &to); err != nil {
				t.Fatal(err)
			}
			at, whole := <-begun
			switch {
			case !whole:
				woken++
			case at < from && to < at+sleep.Microseconds():
				t.Fatalf("a KILL QUERY %d us after the begin did not end a sleep of %v", from-at, sleep)
			default:
				slept++
			}
		}
		t.Logf("%d rounds: %d were woken, %d began after the KILL QUERY", rounds, woken, slept)
		if woken < rounds/20 || slept < rounds/20 {
			t.Error("the KILL QUERY did not come at the begin of the procedure often enough")
		}
	})
}
