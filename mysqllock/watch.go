package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// watch is the waiting of all attempts of this process for one key, on one
// connection: it blocks on the name of whoever is before the first of them.
type watch struct {
	listeners map[string]*listener // by owner; guarded by bell.mu
	running   bool                 // guarded by bell.mu
	stop      context.CancelFunc   // of the goroutine, while it is running
	most      time.Duration        // between two looks of those with the shortest lease; guarded by bell.mu
}

// listener is an attempt that waits, or may soon.
type listener struct {
	key, owner string
	queued     time.Time  // when it last saw itself in the queue; guarded by bell.mu
	news       chan state // the latest
}

const (
	longest = 90 * time.Second // a wait in the server; proxies cut what is silent for longer
	seen    = 8192             // bytes of a queue that are looked at

	dialWithin = time.Second // meanwhile nobody looks
)

// listen announces an attempt, before it asks to be queued: what a watch reads then
// shows it, or it is behind all that the watch has seen.
func (l *bell) listen(key, owner string, most time.Duration) *listener {
	if l == nil {
		return nil
	}
	li := &listener{key: key, owner: owner, news: make(chan state, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.keys[key]
	if w == nil {
		w = &watch{listeners: map[string]*listener{}, most: most}
		l.keys[key] = w
	}
	w.most = min(w.most, most)
	w.listeners[owner] = li
	return li
}

func (l *bell) leave(li *listener) {
	if li == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.keys[li.key]
	delete(w.listeners, li.owner)
	if len(w.listeners) == 0 && !w.running {
		delete(l.keys, li.key)
	}
}

// follow makes sure that a watch looks after an attempt that saw itself in the queue
// of s. It is false if no connection is left for that.
func (l *bell) follow(li *listener, s state) bool {
	if li == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	li.queued = time.Now()
	w := l.keys[li.key]
	if w.running {
		return true
	}
	if !s.held() || l.b.life.Err() != nil || time.Now().Before(l.noWatch) {
		return false
	}
	if l.running >= l.watches {
		for _, other := range l.keys {
			if other.running && len(other.listeners) == 0 {
				other.stop() // nobody needs it any more; its place is free soon
				break
			}
		}
		return false
	}
	if !l.b.enter() {
		return false
	}
	ctx, cancel := context.WithCancel(l.b.life)
	w.running, w.stop = true, cancel
	l.running++
	go func() {
		defer l.b.wg.Done()
		defer cancel()
		err := l.run(ctx, w, li.key, s)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
		if err == nil {
			return // another watch may be running by now
		}
		l.end(w, li.key)
		if ctx.Err() == nil {
			l.noWatch = later(l.noWatch, sulk/10)
		}
		for _, li := range w.listeners {
			if !li.queued.IsZero() {
				li.tell(state{lost: true})
			}
		}
	}()
	return true
}

// tell leaves the latest news for an attempt. The caller has bell.mu.
func (li *listener) tell(s state) {
	select {
	case <-li.news:
	default:
	}
	li.news <- s
}

// end notes that a watch runs no more. The caller has bell.mu.
func (l *bell) end(w *watch, key string) {
	w.running = false
	if len(w.listeners) == 0 {
		delete(l.keys, key)
	}
}

// run watches a key, of which s is known, until nobody waits for it.
func (l *bell) run(ctx context.Context, w *watch, key string, s state) error {
	within, cancel := context.WithTimeout(ctx, dialWithin)
	conn, err := l.b.connect(within)
	cancel()
	if err != nil {
		return err
	}
	healthy := true
	defer func() {
		if healthy {
			_ = conn.Close() // to the pool: it has no names
		} else {
			discard(conn)
		}
	}()
	var (
		was   string
		tried int // of those ahead, who had no name
		pause pace
	)
	for {
		ahead, most, waits := l.spread(w, key, s)
		if !waits {
			return nil
		}
		if is := fmt.Sprint(s.owner, s.token, ahead); is != was {
			was, tried, pause.last = is, 0, 0
		}
		pause.most = most
		until := s.sent.Add(s.left())
		before := ""
		if !s.held() || tried >= len(ahead) {
			// Nobody has such a name: its session is gone, or never had one. Look now and then.
			tried = 0
			if !sleep(ctx, pause.failed()) {
				return ctx.Err()
			}
		}
		if s.held() {
			before = ahead[tried]
		}
		next, rang, err := l.await(ctx, conn, key, before, time.Until(until))
		if err != nil {
			healthy = false
			return err
		}
		if rang {
			tried++
		}
		s = next
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// spread tells the attempts of this process what s means to them, and returns whom
// the first of them waits for: the one before it, else the holder.
func (l *bell) spread(w *watch, key string, s state) (ahead []string, most time.Duration, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := len(w.listeners)
	found := map[string]bool{}
	if li := w.listeners[s.owner]; li != nil && s.held() {
		li.tell(s)
		found[s.owner] = true
		left--
	}
	last, place, first := s.owner, 1, true
	for e := range strings.SplitSeq(strings.TrimPrefix(s.queue, ";"), ";") {
		if len(e) >= ownerLen && e != "" {
			owner := e[:ownerLen]
			if li := w.listeners[owner]; li != nil {
				found[owner] = true
				if first {
					ahead, first = []string{last}, false
					if !s.held() {
						s.place = place
						li.tell(s) // to ask for it
						s.place = 0
					}
				}
			}
			if first {
				last = owner
			}
		}
		place += len(e) + 1
	}
	if first && left > 0 {
		ahead = []string{last} // they are behind all that was seen
	}
	if len(ahead) > 0 && ahead[0] != s.owner && s.owner != "" {
		ahead = append(ahead, s.owner)
	}
	for owner, li := range w.listeners {
		if !li.queued.IsZero() && !found[owner] && s.whole && s.sent.After(li.queued) {
			li.tell(s) // it is not in the queue any more
		}
	}
	if left == 0 {
		l.end(w, key) // whoever comes now starts another
	}
	return ahead, w.most, left > 0
}

// await waits until the attempt before lets its name go, at most for left, and
// reads the row. It rang if the name was free.
func (l *bell) await(ctx context.Context, conn *sql.Conn, key, before string, left time.Duration) (s state, rang bool, err error) {
	left = max(left, 0)
	within := min(left+left/64+5*time.Millisecond, longest) // a little after a renewal rather than before it
	ctx, cancel := context.WithTimeout(ctx, within+l.b.opt.timeout)
	defer cancel()
	image := l.b.image(key)
	if before == "" {
		s, err = l.read(ctx, conn, image)
		return s, false, err
	}
	sent := time.Now()
	name := l.name(before)
	hint, seconds := "", fmt.Sprintf("%.3f", within.Seconds())
	if !l.maria {
		// MySQL's GET_LOCK knows whole seconds only
		hint, seconds = fmt.Sprintf("/*+ MAX_EXECUTION_TIME(%d) */ ", within.Milliseconds()), fmt.Sprint(int(longest/time.Second)*2)
	}
	rows, err := conn.QueryContext(ctx, fmt.Sprintf("SELECT %s%s,GET_LOCK(%s,%s),RELEASE_LOCK(%s);%s", hint, now, name, seconds, name, image))
	if err != nil {
		return l.unanswered(ctx, conn, image, err)
	}
	defer rows.Close()
	var began int64
	var got, freed sql.NullInt64
	if rows.Next() {
		err = rows.Scan(&began, &got, &freed)
	}
	if err == nil {
		err = rows.Err()
	}
	if err != nil {
		rows.Close()
		return l.unanswered(ctx, conn, image, err)
	}
	if !rows.NextResultSet() {
		return s, false, errors.Join(errors.New("mysql: one answer to two statements"), rows.Err())
	}
	err = scanImage(rows, &s)
	received := time.Now()
	// The answer may be long after the question. The clock was read at its beginning too, so this is
	// an instant before the row was read, however long the answer took.
	s.sent = sent.Add(time.Duration(s.now-began) * time.Microsecond)
	if s.sent.After(received) {
		s.sent = received // the server's clock was put forward
	}
	return s, got.Int64 == 1, err
}

// unanswered reads the row after a wait that the server ended.
func (l *bell) unanswered(ctx context.Context, conn *sql.Conn, image string, err error) (state, bool, error) {
	switch number(err) {
	case errTimeLimitMy, errTimeLimit:
		s, err := l.read(ctx, conn, image)
		return s, false, err
	case errUserDeadlock, errDeadlock:
		s, err := l.read(ctx, conn, image)
		return s, true, err // cannot be, among us; as if nobody had the name
	}
	return state{}, false, err
}

func (l *bell) read(ctx context.Context, conn *sql.Conn, image string) (s state, err error) {
	s.sent = time.Now()
	rows, err := conn.QueryContext(ctx, image)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	return s, scanImage(rows, &s)
}
