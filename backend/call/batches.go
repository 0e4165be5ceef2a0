package call

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// fewest is how many batches may be on their way at a time, however fast they return: while the server handles one, the
// client writes another.
const fewest = 2

// Batches sends requests together that are made at the same time. Each batch occupies a connection. A request is sent at
// once, alone, while few batches are on their way. Otherwise it waits for the first of them to return, and is sent with all
// others that wait. Few are two or, if the way to the server is longer, as many as let one return in each spacing.
// After 20 ms those that wait are sent anyway.
//
// So a request that is alone does not wait, and many cost the client and the server less than if each had its own
// connection. Its methods may be called concurrently.
type Batches[Q, T any] struct {
	life       *Life
	most, size int
	spacing    time.Duration
	send       func(context.Context, []*Member[Q, T]) bool

	mu      sync.Mutex      // guards the fields below
	waiting []*Member[Q, T] // maybe some that were withdrawn
	running int             // batches on their way
	fastest time.Duration   // of the batches that were answered, 0 before the first
}

// Member is a request in a batch.
type Member[Q, T any] struct {
	request[T]
	Request Q
	life    *Life
}

// NewBatches returns batches of at most size requests, of which at most most are on their way at a time. spacing is how long a
// request may wait for others: about what the server needs for a few.
//
// send sends a batch, and returns when no connection is occupied by it any more. It reports whether the server has answered.
// It calls End of each member, or has another task of life do that. Its context has the values of the first member and the
// latest deadline, and does not end.
func NewBatches[Q, T any](
	life *Life, most, size int, spacing time.Duration, send func(context.Context, []*Member[Q, T]) bool,
) *Batches[Q, T] {
	return &Batches[Q, T]{life: life, most: most, size: size, spacing: spacing, send: send}
}

// Do sends a request, as a task of life, and returns its result. If ctx ends first, Do does what [Detached] does: a request
// that waits for its batch is withdrawn.
func (b *Batches[Q, T]) Do(ctx context.Context, q Q) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, backend.NotExecuted(err)
	}
	if !b.life.Enter() {
		return none, backend.ErrClosed
	}
	m := &Member[Q, T]{request: request[T]{caller: ctx, end: b.life.ending(), of: b}, Request: q, life: b.life}
	b.add(m)
	return m.await(b.life)
}

// add adds a request, which has entered the life, to those that wait.
func (b *Batches[Q, T]) add(m *Member[Q, T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, m)
	if b.running < b.allowed() {
		b.running++
		b.life.also(b)
	}
}

// overdue is called for a request that has lasted for long: if some wait, those on their way may be on connections that
// have died without a sign, and one more batch is sent.
func (b *Batches[Q, T]) overdue() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 && b.running < b.most {
		b.running++
		b.life.also(b)
	}
}

// allowed returns how many batches may be on their way.
func (b *Batches[Q, T]) allowed() int {
	if b.size == 1 { // waiting gains nothing
		return b.most
	}
	return min(max(fewest, int(b.fastest/b.spacing)), b.most)
}

// run sends batches until no request waits. It is a task.
func (b *Batches[Q, T]) run() {
	var took time.Duration
	for batch, more := b.next(0); more; batch, more = b.next(took) {
		took = 0
		if len(batch) == 0 { // all were withdrawn
			continue
		}
		if begun := time.Now(); b.send(within(batch), batch) {
			took = time.Since(begun)
		}
	}
}

// next returns the requests of a batch, after one that took so long. It returns false if none waits: then a batch less is on
// its way.
func (b *Batches[Q, T]) next(took time.Duration) ([]*Member[Q, T], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if took > 0 && (b.fastest == 0 || took < b.fastest) {
		b.fastest = took
	}
	n := min(len(b.waiting), b.size)
	batch := slices.DeleteFunc(slices.Clone(b.waiting[:n]), func(m *Member[Q, T]) bool {
		sent := n > 1 && m.sending.claim() || n == 1 && !m.sending.withdrawn() // one alone can be withdrawn until it is written
		if !sent {
			m.life.Leave()
		}
		return !sent
	})
	b.waiting = slices.Delete(b.waiting, 0, n)
	if n == 0 {
		b.running--
	}
	return batch, n > 0
}

// End ends a request with its result.
func (m *Member[Q, T]) End(value T, err error) {
	m.value, m.err = value, err
	m.end.done <- struct{}{}
	m.life.Leave()
}

// Sending is the state of the request. It cannot be withdrawn any more, unless it is alone.
func (m *Member[Q, T]) Sending() *Sending { return &m.sending }

// Caller is the context of Do.
func (m *Member[Q, T]) Caller() context.Context { return m.caller }

// within returns the context of a batch.
func within[Q, T any](batch []*Member[Q, T]) context.Context {
	if len(batch) == 1 {
		return &batch[0].request
	}
	c := batchContext{Context: context.WithoutCancel(batch[0].caller)}
	for _, m := range batch {
		d, ok := m.caller.Deadline()
		if !ok {
			return c.Context
		}
		if d.After(c.deadline) {
			c.deadline = d
		}
	}
	return c
}

type batchContext struct {
	context.Context
	deadline time.Time
}

func (c batchContext) Deadline() (time.Time, bool) { return c.deadline, true }
