package lock

import (
	"container/list"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Local hand-off: goroutines of one client that want the same key share one attempt
// at the backend, and pass what it is granted on among themselves. See WithLocalHandOff
// for what a user must know of it, and docs/adr/0018-local-hand-off.md for why.
//
//	line    those of this client who want a key, in the order of their coming
//	asking  the one attempt at the backend that is under way for a line
//	chain   a grant of the backend, which the heads of the line hold in turn
//	loan    the turn of one of them: the backend.Grant of its hold
const (
	// chainLength is how many hold one grant in turn, and chainAge how old it may be
	// when it is passed on. They bound how long other processes wait for this one.
	chainLength = 16
	chainAge    = 10 * time.Millisecond

	// loanBits of a token number the loans of a chain.
	loanBits = 8
)

// loanToken makes the token of a chain's nth loan. Zero stays zero: no tokens.
func loanToken(t uint64, nth int) uint64 {
	if t == 0 {
		return 0
	}
	return t<<loanBits | uint64(nth)
}

// maxShifted is the greatest token of a backend that has room for the loans, in the
// signed numbers that databases keep.
const maxShifted = math.MaxInt64 >> loanBits

// handOff is the local hand-off of one client.
type handOff struct {
	c     *Client
	mu    sync.Mutex // guards everything that hangs on lines
	lines map[string][]*line
}

// line is those who want one key on the same terms: what one of them holds can be
// passed to the next as it is.
type line struct {
	o        *handOff
	key      string
	ttl      time.Duration
	metadata string

	waiters list.List // of *inLine
	asking  *asking
	chain   *chain
}

// inLine is one Lock that waits.
type inLine struct {
	ctx     context.Context
	req     backend.Request
	at      *list.Element
	asked   bool // the attempt under way was begun for it, among others
	leaving bool // its context has ended; the attempt under way is being cancelled for it
	told    bool // that it waits
	waits   chan *LockedError
	result  chan loanResult
}

type loanResult struct {
	loan backend.Grant
	err  error
}

func newHandOff(c *Client) *handOff {
	return &handOff{c: c, lines: map[string][]*line{}}
}

// lineLocked returns the line of a request, made if there was none.
func (o *handOff) lineLocked(req backend.Request) *line {
	for _, ln := range o.lines[req.Key] {
		if ln.ttl == req.TTL && ln.metadata == req.Metadata {
			return ln
		}
	}
	ln := &line{o: o, key: req.Key, ttl: req.TTL, metadata: req.Metadata}
	o.lines[req.Key] = append(o.lines[req.Key], ln)
	return ln
}

// tidyLocked forgets a line that nobody needs.
func (ln *line) tidyLocked() {
	if ln.waiters.Len() > 0 || ln.asking != nil || ln.chain != nil {
		return
	}
	rest := ln.o.lines[ln.key]
	for i, other := range rest {
		if other == ln {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if len(rest) == 0 {
		delete(ln.o.lines, ln.key)
	} else {
		ln.o.lines[ln.key] = rest
	}
}

// tryAcquire makes one attempt, unless somebody of this client holds or awaits the key.
func (o *handOff) tryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if locked := o.taken(req.Key); locked != nil {
		return nil, locked
	}
	a := &asking{o: o, req: req, sent: time.Now()}
	a.req.OnLost = a.lose
	show := o.showing(req.Key)
	g, err := o.c.b.TryAcquire(ctx, a.req)
	if err != nil {
		return nil, shownLocked(err, show)
	}
	ch := newChain(a, g)
	w := &inLine{req: req, result: make(chan loanResult, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	ch.beginLocked(o.lineLocked(req), a, w)
	r := <-w.result
	return r.loan, r.err
}

// taken tells who of this client is before somebody who would not wait: who waits, or
// holds what was granted just now. Of an older grant the backend knows more.
func (o *handOff) taken(key string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ln := range o.lines[key] {
		switch {
		case ln.chain != nil && (ln.waiters.Len() > 0 || time.Since(ln.chain.born) < chainAge):
			return ln.chain.lockedLocked()
		case ln.waiters.Len() > 0:
			return &LockedError{}
		}
	}
	return nil
}

// acquire waits in line.
func (o *handOff) acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	w := &inLine{ctx: ctx, req: req, waits: make(chan *LockedError, 1), result: make(chan loanResult, 1)}
	o.mu.Lock()
	ln := o.lineLocked(req)
	w.at = ln.waiters.PushBack(w)
	switch {
	case ln.chain != nil:
		w.tellLocked(ln.chain.lockedLocked())
	case ln.asking != nil && ln.asking.locked != nil:
		w.tellLocked(ln.asking.lockedNow())
	}
	ln.askLocked()
	o.mu.Unlock()

	returned := false
	defer func() {
		if !returned { // an observer panicked
			o.desert(ln, w)
		}
	}()
	for {
		select {
		case r := <-w.result:
			returned = true
			return r.loan, r.err
		case locked := <-w.waits:
			req.OnWait(locked)
		case <-ctx.Done():
			returned = true
			return o.leave(ctx, ln, w)
		}
	}
}

// tellLocked has the waiter tell, once and in its own goroutine, that it waits.
func (w *inLine) tellLocked(locked *LockedError) {
	if !w.told {
		w.told = true
		w.waits <- locked
	}
}

// leave takes a waiter whose context has ended out of the line. The last one takes
// the attempt at the backend with it, and answers for what became of that.
func (o *handOff) leave(ctx context.Context, ln *line, w *inLine) (backend.Grant, error) {
	o.mu.Lock()
	switch {
	case w.at == nil: // it has been served meanwhile
	case ln.asking != nil && ln.waiters.Len() == 1:
		w.leaving = true
		ln.asking.cancel()
	default:
		ln.waiters.Remove(w.at)
		ln.tidyLocked()
		o.mu.Unlock()
		return nil, ctx.Err()
	}
	o.mu.Unlock()
	r := <-w.result // a driver returns soon after its context has ended
	var of *otherAttempt
	if errors.Is(r.err, context.Canceled) && errors.As(r.err, &of) {
		// It was this leaving that ended it, so the reason is the waiter's own.
		if !errors.Is(of.error, ErrUncertain) {
			return nil, ctx.Err()
		}
		return nil, &otherAttempt{backend.Uncertain(ctx.Err()), of.req}
	}
	return r.loan, r.err
}

// desert undoes what a waiter that will not come back for it may have got.
func (o *handOff) desert(ln *line, w *inLine) {
	o.mu.Lock()
	if w.at != nil {
		ln.waiters.Remove(w.at)
		w.at = nil
		if ln.waiters.Len() == 0 && ln.asking != nil {
			ln.asking.cancel()
		}
		ln.tidyLocked()
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	r := <-w.result
	var of *otherAttempt
	if r.loan != nil {
		o.c.cleanUp(w.req, w.req.TTL+margin(w.req.TTL), "release after a panic", r.loan.Release)
	} else if errors.As(r.err, &of) && errors.Is(of, ErrUncertain) {
		o.abandonLater(of.req)
	}
}

// abandonLater abandons an attempt for which nobody is left who could.
func (o *handOff) abandonLater(req backend.Request) {
	o.c.cleanUp(req, req.TTL+margin(req.TTL), "abandoned attempt", func(ctx context.Context) error {
		return o.c.b.Abandon(ctx, req)
	})
}

// serveLocked gives a waiter its result and takes it out of the line.
func (ln *line) serveLocked(w *inLine, r loanResult) {
	if w.at != nil {
		ln.waiters.Remove(w.at)
		w.at = nil
	}
	w.result <- r
}

func (ln *line) headLocked() *inLine {
	if e := ln.waiters.Front(); e != nil {
		return e.Value.(*inLine)
	}
	return nil
}

// askLocked sends the line's attempt to the backend if it is time: nobody of the line
// holds the key, or the one who does is the last of its chain. The attempt stands in the
// backend's queue then, when the key is released.
func (ln *line) askLocked() {
	head := ln.headLocked()
	if head == nil || ln.asking != nil {
		return
	}
	if ch := ln.chain; ch != nil && ch.goesOnLocked(time.Now()) {
		ch.wakeLocked()
		return
	}
	c := ln.o.c
	ctx, cancel := context.WithCancel(context.WithoutCancel(head.ctx))
	a := &asking{o: ln.o, ln: ln, req: head.req, sent: time.Now(), cancel: cancel}
	a.req.OnWait, a.req.OnLost = a.waits, a.lose
	for e := ln.waiters.Front(); e != nil; e = e.Next() {
		e.Value.(*inLine).asked = true
	}
	ln.asking = a
	if !c.beginLate() { // those in line have been told of the closing, too
		cancel()
		a.failedLocked(ErrClosed)
		return
	}
	go a.run(ctx)
}
