package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// keyWatcher waits for all attempts of this process on one key, on one connection: it
// blocks on the named lock of the predecessor of the first of them.
type keyWatcher struct {
	n   *notifier
	key string

	// Guarded by notifier.mu:
	waiters map[string]*waiter // by owner id
	running bool
	stop    context.CancelFunc // of the goroutine, while it runs
	maxPoll time.Duration      // the least of all waiters so far
}

// waiter is an attempt that waits, or may soon.
type waiter struct {
	w        *keyWatcher
	owner    string
	queuedAt time.Time      // when it last found itself in the queue; guarded by notifier.mu
	news     chan *rowState // the latest; nil: the watcher failed, the attempt has to poll
}

const (
	maxWait      = 90 * time.Second // in one statement; proxies close connections that are silent for longer
	maxQueueRead = 8192             // bytes
	waitDialTime = time.Second      // no waiter of the key polls meanwhile
)

// register adds an attempt before its first request. A row that the watcher reads later has
// the attempt in the queue, or the attempt is behind all that the watcher has seen. The
// waiter is nil if n is nil.
func (n *notifier) register(key, owner string, maxPoll time.Duration) *waiter {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watchers[key]
	if w == nil {
		w = &keyWatcher{n: n, key: key, waiters: map[string]*waiter{}, maxPoll: maxPoll}
		n.watchers[key] = w
	}
	w.maxPoll = min(w.maxPoll, maxPoll)
	wt := &waiter{w: w, owner: owner, news: make(chan *rowState, 1)}
	w.waiters[owner] = wt
	return wt
}

// unregister removes an attempt. wt may be nil.
func (wt *waiter) unregister() {
	if wt == nil {
		return
	}
	wt.w.n.mu.Lock()
	defer wt.w.n.mu.Unlock()
	delete(wt.w.waiters, wt.owner)
	wt.w.removeLocked()
}

// removeLocked removes a watcher that is not needed. The caller holds notifier.mu.
func (w *keyWatcher) removeLocked() {
	if len(w.waiters) == 0 && !w.running {
		delete(w.n.watchers, w.key)
	}
}

// sendLocked replaces the news of an attempt. The caller holds notifier.mu.
func (wt *waiter) sendLocked(s *rowState) {
	select {
	case <-wt.news:
	default:
	}
	wt.news <- s
}

// watch starts the watcher, if it does not run, for an attempt that is in the queue of s. It
// returns false if the attempt has to poll. wt may be nil.
func (wt *waiter) watch(s rowState) bool {
	if wt == nil {
		return false
	}
	w, n := wt.w, wt.w.n
	n.mu.Lock()
	defer n.mu.Unlock()
	wt.queuedAt = time.Now()
	if w.running {
		return true
	}
	if !s.held() || time.Now().Before(n.noWaitBefore) {
		return false
	}
	if n.waiting >= n.maxWaits {
		n.stopUnusedLocked()
		return false
	}
	if !n.b.enter() {
		return false
	}
	ctx, cancel := context.WithCancel(n.b.life)
	w.running, w.stop = true, cancel
	n.waiting++
	go func() {
		defer n.b.wg.Done()
		defer cancel()
		w.ended(ctx, w.run(ctx, s))
	}()
	return true
}

// stopUnusedLocked stops a watcher without waiters: its connection is free soon.
func (n *notifier) stopUnusedLocked() {
	for _, w := range n.watchers {
		if w.running && len(w.waiters) == 0 {
			w.stop()
			return
		}
	}
}

// ended cleans up after run, which returned err.
func (w *keyWatcher) ended(ctx context.Context, err error) {
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	w.n.waiting--
	if err == nil {
		return // dispatch has cleaned up, and run may have been called again
	}
	w.running = false
	w.removeLocked()
	if ctx.Err() == nil {
		w.n.noWaitBefore = atLeast(w.n.noWaitBefore, waitCooldown)
	}
	for _, wt := range w.waiters {
		if !wt.queuedAt.IsZero() {
			wt.sendLocked(nil)
		}
	}
}

// run watches the key, of which s is known, until no attempt of this process waits for it.
func (w *keyWatcher) run(ctx context.Context, s rowState) error {
	dialCtx, cancel := context.WithTimeout(ctx, waitDialTime)
	conn, err := w.n.b.connect(dialCtx)
	cancel()
	if err != nil {
		return err
	}
	var (
		last  string       // holder and predecessors of the last wait
		tried int          // predecessors whose named lock was free
		polls pollSchedule // while all of them are free
	)
	for {
		ahead, maxPoll := w.dispatch(s)
		if len(ahead) == 0 {
			_ = conn.Close() // to the pool: it owns no named locks
			return nil
		}
		if current := fmt.Sprint(s.owner, s.token, ahead); current != last {
			last, tried, polls.last = current, 0, 0
		}
		if polls.max = maxPoll; !s.held() || tried == len(ahead) {
			tried = 0
			if !sleep(ctx, polls.backoff()) {
				_ = conn.Close()
				return ctx.Err()
			}
		}
		var free bool
		if s, free, err = w.waitFor(ctx, conn, ahead[tried], s); err != nil {
			discard(conn)
			return err
		}
		if free {
			tried++
		}
	}
}

// dispatch sends s to the waiters of this process that it concerns. It returns the owner
// ids whose named locks the first of the others may wait for: that of its predecessor and
// that of the holder. If no waiter is left it returns none, and run has to return.
func (w *keyWatcher) dispatch(s rowState) (ahead []string, maxPoll time.Duration) {
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	inRow := map[string]bool{}
	remaining := len(w.waiters)
	if wt := w.waiters[s.owner]; wt != nil && s.held() {
		wt.sendLocked(&s)
		inRow[s.owner] = true
		remaining--
	}
	predecessor, first := s.owner, true
	for place, owner := range queueOwners(s.queue) {
		if wt := w.waiters[owner]; wt != nil {
			inRow[owner] = true
			if first && !s.held() {
				turn := s
				turn.place = place
				wt.sendLocked(&turn) // it requests the key
			}
			first = false
		}
		if first {
			predecessor = owner
		}
	}
	for owner, wt := range w.waiters {
		if !wt.queuedAt.IsZero() && !inRow[owner] && s.complete && s.sent.After(wt.queuedAt) {
			wt.sendLocked(&s) // it is not in the queue any more
		}
	}
	if remaining == 0 {
		w.running = false
		w.removeLocked()
		return nil, 0
	}
	ahead = []string{predecessor}
	if predecessor != s.owner && s.owner != "" {
		ahead = append(ahead, s.owner)
	}
	return ahead, w.maxPoll
}

// waitFor reads the row. If the key was held in s, waitFor first waits until the named lock
// of owner is free, at most until the lease of s has ended. free reports whether it was free.
func (w *keyWatcher) waitFor(ctx context.Context, conn *sql.Conn, owner string, s rowState) (next rowState, free bool, err error) {
	b, read := w.n.b, w.n.b.selectRow(w.key, "", false)
	if s.held() {
		left := max(time.Until(s.sent.Add(s.left())), 0)
		limit := min(left+left/64+5*time.Millisecond, maxWait) // a little after a renewal rather than before it
		bounded, cancel := context.WithTimeout(ctx, limit+b.opt.timeout)
		defer cancel()
		next, free, err = w.n.block(bounded, conn, owner, limit, read)
		switch number(err) {
		case errTimeLimit, errTimeLimitMySQL:
		case errNameDeadlock, errDeadlock: // not possible among named locks of this driver
			free = true
		default:
			return next, free, err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer cancel()
	next, err = readRow(bounded, conn, read)
	return next, free, err
}

// block waits up to limit for the named lock of owner and reads the row, in one packet.
func (n *notifier) block(ctx context.Context, conn *sql.Conn, owner string, limit time.Duration, read string) (s rowState, free bool, err error) {
	name, hint, seconds := n.name(owner), "", fmt.Sprintf("%.3f", limit.Seconds())
	if !n.mariaDB { // GET_LOCK of MySQL rounds to seconds
		hint, seconds = fmt.Sprintf("/*+ MAX_EXECUTION_TIME(%d) */ ", limit.Milliseconds()), fmt.Sprint(int(maxWait/time.Second)*2)
	}
	sent := time.Now()
	rows, err := conn.QueryContext(ctx, fmt.Sprintf("SELECT %s%s,GET_LOCK(%s,%s),RELEASE_LOCK(%s);%s", hint, now, name, seconds, name, read))
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
