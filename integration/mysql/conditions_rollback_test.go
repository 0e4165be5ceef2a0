package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/suite"
)

// rolledBack: a statement that the server rolls back because of others is sent again until the
// timeout, any number of times; then its error is returned. A Lock goes on for its TTL.
func rolledBack(s *stage) {
	const times = 30
	exec(s.T, s.admin, "CREATE TABLE refusals (n INT NOT NULL) ENGINE=MyISAM", "INSERT INTO refusals VALUES (0)") // not transactional: it counts statements that are rolled back
	refuse := func(most, number int) {
		exec(s.T, s.admin, "UPDATE refusals SET n=0", "DROP TRIGGER IF EXISTS refuse",
			fmt.Sprintf("CREATE TRIGGER refuse BEFORE UPDATE ON interlock FOR EACH ROW BEGIN UPDATE refusals SET n=n+1; IF (SELECT n FROM refusals)<=%d THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=%d, MESSAGE_TEXT='rolled back by the test'; END IF; END", most, number))
	}
	defer exec(s.T, s.admin, "DROP TRIGGER refuse")
	refused := func() (n int) {
		s.no(s.admin.QueryRow("SELECT n FROM refusals").Scan(&n))
		return n
	}
	longTimeout := openRaw(s.T, suite.WithParams(s.s.URL(), map[string]string{"timeout": "1m"}))
	g, err := longTimeout.TryAcquire(s.Context(), s.request())
	s.no(err)
	refuse(times, 1213)
	if err := g.Renew(s.Context(), time.Hour); err != nil {
		s.Errorf("a statement that the server rolls back %d times: want it sent again, got %v", times, err)
	}
	s.no(g.Release(s.Context()))

	b := openRaw(s.T, suite.WithParams(s.s.URL(), map[string]string{"timeout": "3s"}))
	g, err = b.TryAcquire(s.Context(), s.request())
	s.no(err)
	refuse(1<<30, 1020)
	req, waits, got := s.request(), make(chan struct{}, 1), make(chan error, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		_, err := b.(backend.Waiter).Acquire(s.Context(), req)
		got <- err
	}()
	more := func(what string, n int) {
		s.Helper()
		n += refused()
		eventually(s.T, what, func() bool {
			select {
			case err := <-got:
				s.Fatalf("a Lock whose statement the server rolls back: want it to go on, got %v", err)
			default:
			}
			return refused() >= n
		})
	}
	more("a Lock that is refused", 1)
	var e *mysql.MySQLError
	if err := g.Renew(s.Context(), time.Hour); !errors.As(err, &e) || e.Number != 1020 {
		s.Errorf("a statement that the server always rolls back: want its error 1020, got %v", err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Renew(ctx, time.Hour) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		s.Errorf("its context is canceled: got %v", err)
	}
	more("a Lock that goes on after the timeout", 3) // its timeout began before that of the renewal
	refuse(0, 1020)
	select {
	case <-waits:
	case <-time.After(bound):
		s.Fatalf("a Lock that is not refused any more: not in the queue within %v", bound)
	}
	s.no(g.Release(s.Context()))
	select {
	case err := <-got:
		s.no(err)
	case <-time.After(bound):
		s.Fatalf("not granted within %v", bound)
	}
}
