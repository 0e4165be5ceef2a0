package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var errNotDelivered = errors.New("postgres: notifications that are sent through the pool do not arrive at the listening connection")

// checkDelivery checks that notifications sent through the pool arrive on conn. A
// transaction pooler accepts LISTEN and delivers nothing, and the address to listen at
// may be of another server.
//
// Two notifications in a row that arrive while conn is idle prove the delivery. The
// server delivers a notification before it replies to a later statement: one that has
// not arrived by then never will. If it arrives with that reply, a pooler may have
// assigned the right session just then, and checkDelivery tries again with more time.
func (l *listener) checkDelivery(ctx context.Context, conn *pgx.Conn) error {
	timeout, proofs := 50*time.Millisecond, 0
	for n := 1; proofs < 2; n++ {
		text := fmt.Sprint("check ", n)
		if _, err := l.s.exec(ctx, "SELECT pg_notify($1, $2)", channelPrefix+l.s.process, text); err != nil {
			return err
		}
		within, cancel := context.WithTimeout(ctx, timeout)
		err := waitForPayload(within, conn, text)
		late := within.Err() != nil
		cancel()
		switch {
		case err == nil:
			proofs++
			continue
		case !late, ctx.Err() != nil:
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT 1", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		over, cancel := context.WithCancel(ctx)
		cancel() // reads only what has arrived
		if waitForPayload(over, conn, text) != nil {
			return errNotDelivered
		}
		timeout, proofs = 2*timeout, 0
	}
	return nil
}

// waitForPayload waits for a notification with this payload.
func waitForPayload(ctx context.Context, conn *pgx.Conn, payload string) error {
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload == payload {
			return err
		}
	}
}

// startListening opens the listening connection that stays until Close.
func (s *service) startListening(ctx context.Context) error {
	err := s.listener.wait(ctx)
	if _, unavailable := s.listener.status(); unavailable {
		return fmt.Errorf("%w (to listen always, set listen to the address of the server itself)", s.describe(errNotDelivered))
	}
	return err
}

// tryListening finds out at opening whether notifications arrive, if a pooler may be
// between. If they do not, waiters poll.
func (s *service) tryListening() error {
	if !s.opt.listen || !s.opt.pooled.Load() {
		return nil
	}
	conn, err := s.listener.connect()
	switch {
	case err == nil:
		closeConn(conn)
	case s.opt.direct != nil:
		return s.describe(fmt.Errorf("listening at %s: %w", hosts(s.opt.direct), err))
	case errors.Is(err, errNotDelivered):
		s.opt.listen = false
	default:
		return s.describe(fmt.Errorf("listening: %w", err))
	}
	return nil
}
