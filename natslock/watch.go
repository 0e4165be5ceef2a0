package natslock

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
)

// watch is the subscription to the changes of a key.
type watch struct {
	sub *nats.Subscription

	mu      sync.Mutex  // guards the fields below
	changes chan string // of versions
	newest  uint64      // version in changes
	ended   bool
}

// watch subscribes to the changes of a key. The server to which the client is connected has handled the
// subscription when watch returns.
func (b *Backend) watch(ctx context.Context, name string) (<-chan string, func(), error) {
	w := &watch{changes: make(chan string, 1)}
	subject := b.republish() + Key(name)
	err := b.subscribe(w, subject)
	if err != nil {
		return nil, nil, err
	}
	stop := func() {
		b.mu.Lock()
		delete(b.watches, w)
		b.mu.Unlock()
		w.end()
	}
	if err = b.subscribed(ctx, subject); err != nil {
		stop()
		return nil, nil, err
	}
	return w.changes, stop, nil
}

func (b *Backend) subscribe(w *watch, subject string) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended.Err() != nil {
		return backend.ErrClosed
	}
	if w.sub, err = b.conn.Subscribe(subject, w.receive); err == nil {
		b.watches[w] = struct{}{}
	}
	return err
}

// receive replaces a change that the waiter has not taken yet by a newer one. A client that may publish to the subject can send
// any version: a message with an old one does not replace a newer one, and nothing else of it is used.
func (w *watch) receive(m *nats.Msg) {
	version := m.Header.Get(jetstream.SequenceHeader)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	n := revision(version)
	select {
	case waiting := <-w.changes:
		if w.newest > n {
			n, version = w.newest, waiting
		}
	default:
	}
	w.newest = n
	w.changes <- version
}

func (w *watch) end() {
	_ = w.sub.Unsubscribe() // it fails if the connection is closed
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		close(w.changes)
	}
}

// watchElections ends all watches when another server leads the stream: it does not republish what the
// former one has stored.
func (b *Backend) watchElections(ctx context.Context) (err error) {
	subject := "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED." + b.stream()
	b.elections, err = b.conn.Subscribe(subject, func(*nats.Msg) { b.endWatches() })
	if err != nil {
		return err
	}
	if err = b.subscribed(ctx, subject); err != nil {
		return errors.Join(err, b.elections.Unsubscribe())
	}
	return nil
}

// subscribed returns when the server has handled the subscription to a subject, with its error if it has refused it.
func (b *Backend) subscribed(ctx context.Context, subject string) error {
	err := b.query(ctx, subject, b.conn.FlushWithContext)
	if err == nil {
		err = b.denied("Subscription", subject)
	}
	return err
}

// watchConnection ends the requests in flight when the connection breaks, and all watches when it is made again:
// changes may have been missed.
func (b *Backend) watchConnection() {
	defer close(b.done)
	for s := range b.states {
		if s == nats.CONNECTED {
			b.endWatches()
			continue
		}
		b.mu.Lock()
		b.beginSessionLocked()
		b.mu.Unlock()
	}
}

// currentSession returns a context that ends when the connection breaks, and with Close.
func (b *Backend) currentSession() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session
}

func (b *Backend) endWatches() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watches {
		w.end()
	}
	clear(b.watches)
}
