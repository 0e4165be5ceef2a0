package queued

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

const retryTime = 50 * time.Millisecond // from the end of a stream to the next one

// listener reads the events of a process, of all keys, and reports them. It is a queue.Pusher.
type listener struct {
	base, process string
	http          *http.Client

	mu     sync.Mutex
	up     chan struct{}      // closed while events arrive
	end    context.CancelFunc // ends the stream
	closed context.CancelFunc
	done   chan struct{} // closed when the listener has ended
}

// start begins to listen. Events are lost until Listening is true.
func (l *listener) start(events queue.Events) {
	var life context.Context
	life, l.closed = context.WithCancel(context.Background())
	l.up, l.end, l.done = make(chan struct{}), func() {}, make(chan struct{})
	go func() {
		defer close(l.done)
		for life.Err() == nil {
			l.listen(life, events)
			select {
			case <-time.After(retryTime):
			case <-life.Done():
			}
		}
	}()
}

// listen reads one stream to its end. It reports events in the order in which the server has sent them.
func (l *listener) listen(life context.Context, events queue.Events) {
	ctx, end := context.WithCancel(life)
	defer end()
	l.mu.Lock()
	l.end = end
	l.mu.Unlock()
	from := l.base + "/events?" + url.Values{"process": {l.process}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return
	}
	slow := time.AfterFunc(requestTime, end) // until the stream has begun
	defer slow.Stop()
	resp, err := l.http.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var e event
		if lines.Decode(&e) != nil {
			break
		}
		if e.Kind == connected && slow.Stop() {
			l.setUp(true)
			defer func() {
				l.setUp(false)
				events.Interrupted("")
			}()
			continue
		}
		report(e, events)
	}
}

func report(e event, to queue.Events) {
	switch key := string(e.Key); e.Kind {
	case granted:
		to.Granted(queue.Grant{
			Key: key, Owner: e.Owner, Token: e.Token, Slots: e.Slots, Received: time.Now(), Expires: e.Expires, TTL: e.Lease,
		})
	case leaseEnds:
		to.LeaseEnds(e.Owner, e.Left)
	case asked:
		to.Asked(key, e.Owner)
	case removed:
		to.Removed(key, e.Owner)
	case lost:
		to.Lost(e.Owner)
	}
}

func (l *listener) setUp(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up {
		close(l.up)
	} else {
		l.up = make(chan struct{})
	}
}

func (l *listener) state() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// Use implements queue.Pusher. One stream has the events of all keys.
func (l *listener) Use(string) (stop func()) { return func() {} }

// Listening implements queue.Pusher.
func (l *listener) Listening(string) bool {
	select {
	case <-l.state():
		return true
	default:
		return false
	}
}

// Listen implements queue.Pusher.
func (l *listener) Listen(ctx context.Context, _ string) error {
	select {
	case <-l.state():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * requestTime):
		return fmt.Errorf("toy server: no events within %v", 2*requestTime)
	}
}

// Doubt implements queue.Pusher. It ends the stream, which the server may have forgotten, and the next one begins.
func (l *listener) Doubt(string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

func (l *listener) stop(ctx context.Context) error {
	l.closed()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
