// Package cleanup repeats requests in the background until the service acknowledges them.
package cleanup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
	"github.com/interlock-go/lock/internal/trust"
)

// Bounds of the requests of one client. What exceeds them waits in a queue: an outage must
// not pile up requests, which would delay renewals when it ends.
const (
	maxRequests = 8   // in flight
	maxBatch    = 256 // attempts abandoned by one request
)

// Cleaner frees what requests may have left at a service. It keeps one small record for
// each of them, and at most maxRequests goroutines.
type Cleaner struct {
	Tasks   *task.Group
	Backend backend.Backend                   // abandons attempts
	Caps    backend.Capabilities              // of Backend
	Failed  func(what, key string, err error) // reports a cleanup that was given up

	mu       sync.Mutex // guards the fields below
	working  int        // goroutines
	queue    []*cleanup
	oneByOne bool                // the backend cannot abandon many at once, as it is deployed
	overdue  map[string]*overdue // by key
}

// overdue counts the attempts on a key that are not abandoned although AbandonAndWait has waited for that.
type overdue struct {
	n    int
	none chan struct{} // closed when n is 0
}

// cleanup is a request that is to be acknowledged.
type cleanup struct {
	req          backend.Request
	what         string
	release      func(context.Context) error // nil: the attempt is abandoned
	deadline     time.Time                   // zero: none
	acknowledged chan bool                   // capacity 1
	overdue      bool                        // counted in Cleaner.overdue; guarded by Cleaner.mu
}

// Abandon abandons an attempt in the background, for as long as a request of it may be
// executed. It does not wait.
func (c *Cleaner) Abandon(req backend.Request) { c.abandon(req) }

func (c *Cleaner) abandon(req backend.Request) *cleanup {
	j := &cleanup{req: req, what: "abandoned attempt"}
	c.start(j, max(req.TTL+trust.Margin(req.TTL), c.Caps.Lateness))
	return j
}

// Wait is how long AbandonAndWait waits.
const Wait = 250 * time.Millisecond

// AbandonAndWait is Abandon, and waits until that is acknowledged, at most for Wait. It reports
// whether it was.
func (c *Cleaner) AbandonAndWait(req backend.Request) bool {
	j := c.abandon(req)
	t := time.NewTimer(Wait)
	defer t.Stop()
	select {
	case ok := <-j.acknowledged:
		return ok
	case <-t.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case ok := <-j.acknowledged:
		return ok
	default:
		c.overdueLocked(j)
		return false
	}
}

func (c *Cleaner) overdueLocked(j *cleanup) {
	j.overdue = true
	o := c.overdue[j.req.Key]
	if o == nil {
		if c.overdue == nil {
			c.overdue = map[string]*overdue{}
		}
		o = &overdue{none: make(chan struct{})}
		c.overdue[j.req.Key] = o
	}
	o.n++
}

// Await waits until no attempt on key is left of which AbandonAndWait returned false, at most for
// limit. Until then the service does not answer, and each further attempt would leave one more to
// abandon. It returns false if ctx ends first.
func (c *Cleaner) Await(ctx context.Context, key string, limit time.Duration) bool {
	c.mu.Lock()
	o := c.overdue[key]
	c.mu.Unlock()
	if o == nil {
		return true
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-o.none:
		return true
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Release calls release, which frees a grant of req that the service keeps for at most
// kept, in the background.
func (c *Cleaner) Release(req backend.Request, kept time.Duration, what string, release func(context.Context) error) {
	c.start(&cleanup{req: req, what: what, release: release}, kept)
}

// start repeats j until it is acknowledged. With LossTTL it gives up after kept, when the
// service has freed the key.
func (c *Cleaner) start(j *cleanup, kept time.Duration) {
	j.acknowledged = make(chan bool, 1)
	if c.Caps.Loss == backend.LossTTL { // a session or a process keeps its grants as long as it lives
		j.deadline = time.Now().Add(max(kept, 100*time.Millisecond))
	}
	if !c.Tasks.BeginCleanup() {
		j.acknowledged <- false
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, j)
	if c.working < maxRequests {
		c.working++
		go c.work()
	}
}

// work sends what is in the queue. What fails goes to the end of the queue. After a failure
// batches begin with one member again: while a service does not answer little is sent, and
// a fault that concerns batches only keeps nothing from being cleaned up.
func (c *Cleaner) work() {
	pause, size := retry.Default(), maxBatch
	for batch := c.next(size); len(batch) > 0; batch = c.next(size) {
		if again := c.send(batch); len(again) == 0 {
			pause, size = retry.Default(), min(2*size, maxBatch)
		} else {
			size = 1
			pause.Wait(c.Tasks.Working())
			c.mu.Lock()
			c.queue = append(c.queue, again...)
			c.mu.Unlock()
		}
	}
}

// next takes the first of the queue and, if it is an attempt to abandon, those that follow,
// up to size. The worker ends if there is none.
func (c *Cleaner) next(size int) []*cleanup {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.queue) && n < size && (n == 0 || !c.oneByOne && c.queue[0].release == nil && c.queue[n].release == nil) {
		n++
	}
	batch := c.queue[:n:n]
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil // frees the array
	}
	if n == 0 {
		c.working--
	}
	return batch
}

var errGivenUp = errors.New("not acknowledged in time")

// send sends one request and ends those of batch that are acknowledged or given up. It
// returns those to send again.
func (c *Cleaner) send(batch []*cleanup) (again []*cleanup) {
	live, bound := batch[:0], time.Duration(0)
	for _, j := range batch {
		timeout := retry.Timeout(j.req.TTL)
		if !j.deadline.IsZero() {
			timeout = min(timeout, time.Until(j.deadline))
		}
		if timeout <= 0 || c.Tasks.Working().Err() != nil {
			c.end(j, errGivenUp)
			continue
		}
		live, bound = append(live, j), max(bound, timeout)
	}
	if len(live) == 0 {
		return nil
	}
	var errs []error
	_ = retry.Within(c.Tasks.Working(), bound, func(ctx context.Context) error {
		errs = c.request(ctx, live)
		return nil
	})
	for i, j := range live {
		if err := errs[i]; err == nil || errors.Is(err, backend.ErrLost) || !retry.Transient(err) {
			c.end(j, err)
		} else {
			again = append(again, j)
		}
	}
	return again
}

// request releases one grant, or abandons one or more attempts.
func (c *Cleaner) request(ctx context.Context, batch []*cleanup) []error {
	if release := batch[0].release; release != nil {
		return []error{release(ctx)}
	}
	reqs := make([]backend.Request, len(batch))
	for i, j := range batch {
		reqs[i] = j.req
	}
	if b, ok := backend.As[backend.BatchAbandoner](c.Backend); ok && len(reqs) > 1 {
		errs := b.AbandonBatch(ctx, reqs)
		unsupported := func(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
		if len(errs) == len(reqs) && !slices.ContainsFunc(errs, unsupported) {
			return errs
		}
	}
	if len(reqs) > 1 {
		c.mu.Lock()
		c.oneByOne = true
		c.mu.Unlock()
	}
	errs := make([]error, len(reqs))
	for i, req := range reqs {
		errs[i] = c.Backend.Abandon(ctx, req)
	}
	return errs
}

func (c *Cleaner) end(j *cleanup, err error) {
	acknowledged := err == nil || errors.Is(err, backend.ErrLost)
	if !acknowledged {
		c.Failed(j.what, j.req.Key, err)
	}
	c.mu.Lock()
	j.acknowledged <- acknowledged
	if o := c.overdue[j.req.Key]; j.overdue {
		if o.n--; o.n == 0 {
			delete(c.overdue, j.req.Key)
			close(o.none)
		}
	}
	c.mu.Unlock()
	c.Tasks.Done()
}
