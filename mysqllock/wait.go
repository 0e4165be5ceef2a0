package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	maxWait      = 90 * time.Second     // in one statement; proxies close connections that are silent for longer
	waitCooldown = connectCooldown / 10 // before the next connection waits, if one failed
)

// reserveWait counts a connection that the watcher of a line is to open. It returns false if the
// watcher has to poll.
func (n *notifier) reserveWait(l *line) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case time.Now().Before(n.noWaitBefore):
		return false
	case len(n.waits) >= n.maxWaits:
		n.endUnusedLocked()
		return false
	}
	n.waits[l] = func() {}
	return true
}

// waitBegins sets what ends the wait of a watcher.
func (n *notifier) waitBegins(l *line, end context.CancelFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits[l] = end
}

// releaseWait ends the use of a connection, which failed or is not needed.
func (n *notifier) releaseWait(l *line, failed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.waits, l)
	if failed && n.b.life.Err() == nil {
		n.noWaitBefore = atLeast(n.noWaitBefore, waitCooldown)
	}
}

// endUnusedLocked ends the wait of a line without waiters: its connection is free soon.
func (n *notifier) endUnusedLocked() {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	for l, end := range n.waits {
		if len(l.waiters) == 0 {
			end()
			return
		}
	}
}

// block waits up to limit for the named lock of owner and reads the row, in one packet.
func (n *notifier) block(ctx context.Context, conn *sql.Conn, owner string, limit time.Duration, read string) (s rowState, free bool, err error) {
	name, hint, seconds := n.name(owner), "", fmt.Sprintf("%.3f", limit.Seconds())
	if !n.b.mariaDB { // GET_LOCK of MySQL rounds to seconds
		hint, seconds = fmt.Sprintf("/*+ MAX_EXECUTION_TIME(%d) */ ", limit.Milliseconds()), fmt.Sprint(int(maxWait/time.Second)*2)
	}
	sent := time.Now()
	rows, err := conn.QueryContext(ctx, fmt.Sprintf("SELECT %s%s,GET_LOCK(%s,%s),RELEASE_LOCK(%s);%s", hint, nowFragment, name, seconds, name, read))
	if err != nil {
		return s, false, err
	}
	defer rows.Close()
	var began int64
	var got, released sql.NullInt64
	if rows.Next() {
		err = rows.Scan(&began, &got, &released)
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		return s, false, err
	}
	if !rows.NextResultSet() {
		return s, false, errors.Join(errors.New("mysql: one result of two statements"), rows.Err())
	}
	err = scanRow(rows, &s)
	received := time.Now()
	s.sent = readAt(sent, received, time.Duration(s.now-began)*time.Microsecond)
	return s, got.Int64 == 1, err
}

// readAt returns an instant before the row was read, on the local clock: a result may come
// long after its request, and waited is how long the server waited by its clock. The clocks
// may run apart by 500 ppm.
func readAt(sent, received time.Time, waited time.Duration) time.Time {
	at := sent.Add(waited - waited/2000)
	if at.After(received) {
		return received // the server's clock was set forward
	}
	return at
}
