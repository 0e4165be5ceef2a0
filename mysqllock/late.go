package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/interlock-go/lock/backend/call"
)

const (
	lateGrace  = 2 * time.Second  // after the timeout, until the connection of a statement is doubted
	lateReply  = 10 * time.Second // for the reply of a server that is slow
	answerTime = time.Second      // for a server that is not slow to reply over a new connection
)

// watchLate closes the connection of a statement by end if the reply does not come, until replied is called. The caller of a
// statement that is late has returned, but the connection waits on: a server that is slow executes the statement of a closed
// connection all the same, so it would execute more of them at a time than the pools have connections, and a new connection
// costs it far more. It is closed if the server replies at once over another one, or after lateReply.
func (s *service) watchLate(statement context.Context, end func()) (replied func()) {
	watched := make(chan struct{})
	watch := time.AfterFunc(s.opt.timeout, func() {
		defer close(watched)
		defer end()
		ctx, cancel := context.WithCancel(statement)
		defer cancel()
		defer context.AfterFunc(s.life.Context(), cancel)()
		if call.Sleep(ctx, lateGrace) && !s.answering.atOnce(ctx) {
			call.Sleep(ctx, lateReply)
		}
	})
	return func() {
		if !watch.Stop() {
			end()
			<-watched
		}
	}
}

// answering finds out whether the server replies at once over another connection, once for many statements.
type answering struct {
	ping func(context.Context) error
	turn chan struct{} // held during ping; guards the fields below
	at   time.Time     // of the last result
	was  bool
}

func newAnswering(ping func(context.Context) error) answering {
	return answering{ping: ping, turn: make(chan struct{}, 1)}
}

func (a *answering) atOnce(ctx context.Context) bool {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return false
	}
	if time.Since(a.at) < answerTime {
		return a.was
	}
	within, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err := a.ping(within)
	if ctx.Err() == nil {
		a.at, a.was = time.Now(), err == nil || number(err) != 0
	}
	return ctx.Err() == nil && a.was
}

// pingNew connects to the server.
func pingNew(c driver.Connector) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := c.Connect(ctx)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
}

// pingPooled uses a connection of the pool of the application, which may be one that was idle.
func pingPooled(db *sql.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.PingContext(ctx)
	}
}
