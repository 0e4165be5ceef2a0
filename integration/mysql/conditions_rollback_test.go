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
	// The trigger writes no table: a statement that has the lock of another engine's table and waits
	// for a row is a deadlock that InnoDB does not see.
	refuse := func(number int) {
		exec(s.T, s.admin, fmt.Sprintf("CREATE TRIGGER refuse BEFORE UPDATE ON interlock FOR EACH ROW SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=%d, MESSAGE_TEXT='rolled back by the test'", number))
	}
	permit := func() { exec(s.T, s.admin, "DROP TRIGGER IF EXISTS refuse") }
	defer permit()
	refused := func() (n int) {
		var name string
		s.no(s.admin.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_signal'").Scan(&name, &n))
		return n
	}
	more := func(what string, n int, got <-chan error) {
		s.Helper()
		n += refused()
		eventually(s.T, what, func() bool {
			select {
			case err := <-got:
				s.Fatalf("%s: want it to go on, got %v", what, err)
			default:
			}
			return refused() >= n
		})
	}
	longTimeout := openRaw(s.T, suite.WithParams(s.s.URL(), map[string]string{"timeout": "1m"}))
	g, err := longTimeout.TryAcquire(s.Context(), s.request())
	s.no(err)
	refuse(1213)
	renewed := make(chan error, 1)
	go func() { renewed <- g.Renew(s.Context(), time.Hour) }()
	more("a statement that the server rolls back", times, renewed)
	permit()
	if err := <-renewed; err != nil {
		s.Errorf("a statement that the server rolls back %d times: want it sent again, got %v", times, err)
	}
	s.no(g.Release(s.Context()))

	b := openRaw(s.T, suite.WithParams(s.s.URL(), map[string]string{"timeout": "3s"}))
	g, err = b.TryAcquire(s.Context(), s.request())
	s.no(err)
	refuse(1020)
	req, waits, got := s.request(), make(chan struct{}, 1), make(chan error, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		_, err := b.(backend.Waiter).Acquire(s.Context(), req)
		got <- err
	}()
	more("a Lock whose statement the server rolls back", 1, got)
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
	more("a Lock that goes on after the timeout", 3, got) // its timeout began before that of the renewal
	permit()
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
