package queuetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// run is one execution of a sequence by a Service and by a Reference, which decides at the times that the Service says.
type run struct {
	h          Harness
	t          testing.TB
	ctx        context.Context
	processes  []process
	seq        sequence
	key        string
	attempts   []attemptSpec // those of the sequence, and those of finish
	owners     []string      // of the attempts
	ref        Reference
	cmp        comparison
	connects   map[string]func() // of the processes that are disconnected
	wants      []Event           // that processes should get
	now        time.Duration
	rows       []row
	operations int
	stage      stage

	// The outcome.
	discarded bool   // rounding may change an answer, or events may have been lost
	failure   string // how they differ; "" if they do not
}

// stage is what a run is about.
type stage int

const (
	random  stage = iota // the operations of the sequence
	ending               // the end of its attempts
	marking              // to know that there are no more events
)

// row is a line of the table of a failure.
type row struct {
	at                   time.Duration
	process, description string
	want, got            []field // got is nil if it is equal
	err                  error
	events               []Event
	hidden               bool
}

// execute runs a sequence on a new key.
func (h Harness) execute(t testing.TB, seq sequence, processes []process) *run {
	r := &run{
		h: h, t: t, processes: processes[:seq.processes], seq: seq, key: "differential-" + newOwner(),
		cmp: comparison{rounding: h.Rounding}, connects: map[string]func(){},
	}
	r.ref.Reachable = func(process string) bool { return r.connects[process] == nil }
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), 10*waitLimit)
	defer cancel()
	for _, a := range seq.attempts {
		r.add(a)
	}
	defer r.listen()()
	interruptions := r.interruptions()
	for _, o := range seq.ops {
		if !r.step(o) {
			break
		}
	}
	r.finish()
	if r.interruptions() != interruptions && !seq.disconnects {
		r.discarded = true
	}
	return r
}

// listen makes sure that events of the key arrive, until stop is called.
func (r *run) listen() (stop func()) {
	var stops []func()
	for _, p := range r.processes {
		if p.pusher == nil {
			continue
		}
		stops = append(stops, p.pusher.Use(r.key))
		if err := p.pusher.Listen(r.ctx, r.key); err != nil {
			r.fail("Listen: %v", err)
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func (r *run) interruptions() (n int) {
	for _, p := range r.processes {
		n += p.recorder.interruptions()
	}
	return n
}

func (r *run) fail(format string, args ...any) bool {
	if r.failure == "" && !r.discarded {
		r.failure = fmt.Sprintf(format, args...)
	}
	return false
}

func processName(i int) string { return fmt.Sprintf("p%d", i+1) }

// step executes an operation. It returns false if the run is over.
func (r *run) step(o op) bool {
	if r.failure != "" || r.discarded {
		return false
	}
	name, p := processName(o.process), r.processes[o.process]
	sent := time.Now()
	switch o.action {
	case sleep:
		time.Sleep(o.ttl)
		r.rows = append(r.rows, row{at: r.now, description: r.seq.describe(o)})
	case disconnect:
		if r.connects[name] == nil {
			r.settle(name, p)
			r.connects[name] = r.h.disconnect(r.t, p, r.key)
			r.rows = append(r.rows, row{at: r.now, process: name, description: r.seq.describe(o)})
		}
	case connect:
		if reconnect := r.connects[name]; reconnect != nil {
			reconnect()
			r.connects[name] = nil
			r.rows = append(r.rows, row{at: r.now, process: name, description: r.seq.describe(o)})
		}
	case acquire:
		a := queue.Attempt{Request: r.request(o.attempt), Mode: o.mode}
		got, err := p.Acquire(r.ctx, a)
		return r.compare(o, sent, got.Now, got.Refused, err, answerFields(got), func() ([]field, []Event) {
			want, events := r.ref.Acquire(r.now, name, a)
			return answerFields(want), events
		})
	case renew:
		hold := queue.Hold{Key: r.key, Owner: r.owners[o.attempt], TTL: o.ttl, Exactly: o.flag}
		hold.Share = r.attempts[o.attempt].share
		got := p.Renew(r.ctx, []queue.Hold{hold})[0]
		return r.compare(o, sent, got.Now, false, nil, renewedFields(got), func() ([]field, []Event) {
			want, events := r.ref.Renew(r.now, name, hold)
			return renewedFields(want), events
		})
	case pass:
		got, err := p.Pass(r.ctx, r.key, o.flag)
		return r.compare(o, sent, got.Now, false, err, passedFields(got), func() ([]field, []Event) {
			want, events := r.ref.Pass(r.now, r.key, o.flag)
			return passedFields(want), events
		})
	default:
		e := r.end(o)
		got := p.End(r.ctx, []queue.End{e})[0]
		return r.compare(o, sent, got.Now, got.Err != nil, nil, endedFields(got), func() ([]field, []Event) {
			want, events := r.ref.End(r.now, name, e)
			return endedFields(want), events
		})
	}
	return true
}

// add adds an attempt and returns its index.
func (r *run) add(a attemptSpec) int {
	r.attempts, r.owners = append(r.attempts, a), append(r.owners, newOwner())
	return len(r.attempts) - 1
}

func (r *run) request(attempt int) backend.Request {
	a := r.attempts[attempt]
	return backend.Request{Key: r.key, Owner: r.owners[attempt], Share: a.share, TTL: a.ttl, Metadata: a.metadata}
}

func (r *run) end(o op) queue.End {
	e := queue.End{Request: backend.Request{Key: r.key}, Late: o.flag}
	switch o.action {
	case breakAll:
		e.Kind, e.Late = queue.Break, false
		return e
	case breakOne:
		e.Kind, e.Late = queue.Break, false
		e.Owner = r.owners[o.attempt]
		return e
	case abandon:
		e.Kind = queue.Abandon
	case downgrade:
		e.Kind, e.Late = queue.Downgrade, false
	}
	e.Request = r.request(o.attempt)
	return e
}

// compare compares what the Service said at a time with what the Reference says. untimed: the answer needs no time.
//
// A service that rounds may read its clock twice in an operation, as Redis does for the expiry of a key, and be suspended
// in between. The times then differ by up to the time that the request took.
func (r *run) compare(o op, sent time.Time, now time.Duration, untimed bool, err error, got []field, reference func() ([]field, []Event)) bool {
	if r.h.Rounding > 0 {
		r.cmp.rounding = max(r.cmp.rounding, r.h.Rounding+time.Since(sent))
	}
	r.operations++
	line := row{process: processName(o.process), description: r.seq.describe(o)}
	switch {
	case err != nil, now == 0 && untimed:
	case now < r.now:
		r.discarded = now > 0 // the clock was set back
		err = fmt.Errorf("the answer has no time")
	default:
		r.now = now
	}
	line.at = r.now
	if line.err = err; err != nil {
		r.rows = append(r.rows, line)
		return r.fail("%s: %v", line.description, err)
	}
	line.want, line.events = reference()
	r.discarded = r.discarded || r.ref.closest > 0 && r.ref.closest <= r.cmp.rounding
	for _, e := range line.events {
		if r.connects[e.Process] == nil {
			r.wants = append(r.wants, e)
		}
	}
	missing, wrong := r.cmp.diff(line.want, got)
	if len(missing) == 0 && len(wrong) == 0 {
		line.hidden = r.stage == marking || r.stage == ending && len(line.events) == 0
		r.rows = append(r.rows, line)
		return !r.discarded
	}
	line.got = got
	r.rows = append(r.rows, line)
	return r.fail("%s: want %s, got %s", line.description, r.format(missing, false), r.format(wrong, false))
}
