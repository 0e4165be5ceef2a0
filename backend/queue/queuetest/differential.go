package queuetest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

const (
	together  = 64  // sequences that run at the same time
	maxReruns = 200 // to shorten a sequence that fails
	maxTries  = 4   // sequences for each that is to be compared
)

// Differential sends random sequences of operations, each on a key of its own, to a Service and to a [Reference], and
// compares all answers and events, until n sequences are equal. The Reference decides at the times that the answers have
// (Answer.Now and the others, which an ErrLost needs too), so times need no tolerance but for rounding, and then for how
// long the slowest request of the sequence took. A sequence in which that could change an answer is discarded; so is one
// in which events may have been lost by a connection that ended.
//
// A sequence that fails is shortened, and printed as a table. The environment variable LOCK_TEST_SEED repeats the
// sequences of a run; on a service whose time is real their times differ a little.
func Differential(t *testing.T, h Harness, n int) {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("LOCK_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LOCK_TEST_SEED: %v", err)
		}
	}
	t.Logf("LOCK_TEST_SEED=%d", seed)
	h.run(t, func(t *testing.T) {
		d := newDiffer(t, h, seed)
		tried, equal := 0, 0
		for more := n; equal < n && tried < maxTries*n; more = n - equal {
			failed, discarded := d.runAll(tried, more)
			if failed != nil {
				t.Fatalf("the Service differs from the Reference, LOCK_TEST_SEED=%d:\n%s", seed, failed)
			}
			tried, equal = tried+more, equal+more-discarded
		}
		t.Logf("%d sequences with %d operations are equal, %d were discarded", equal, d.operations, tried-equal)
		if equal < n {
			t.Errorf("%d of %d sequences were discarded: times are coarse, the service is slow, or connections end", tried-equal, tried)
		}
	})
}

// differ runs sequences. A run takes its processes from a pool and puts them back.
type differ struct {
	h                Harness
	t                testing.TB
	seed             uint64
	shared, separate chan []process // for sequences without and with disconnects
	operations       int            // of sequences that are equal
}

func newDiffer(t testing.TB, h Harness, seed uint64) *differ {
	d := &differ{h: h, t: t, seed: seed, shared: make(chan []process, together), separate: make(chan []process, together)}
	open := func() []process {
		all := make([]process, maxProcesses)
		for i := range all {
			all[i] = h.open(t)
		}
		return all
	}
	all := open()
	for range together {
		d.shared <- all
	}
	if h.Disconnect != nil {
		for range together / 8 {
			d.separate <- open()
		}
	}
	return d
}

func (d *differ) sequence(i int) sequence {
	rnd := rand.New(rand.NewPCG(d.seed, uint64(i)))
	return newSequence(rnd, d.h.Disconnect != nil && i%8 == 0)
}

func (d *differ) execute(seq sequence) *run {
	pool := d.shared
	if seq.disconnects {
		pool = d.separate
	}
	processes := <-pool
	defer func() { pool <- processes }()
	return d.h.execute(d.t, seq, processes)
}

// runAll runs n sequences, the first of which has that number, until one fails. It returns that one, made shorter, and
// how many were discarded.
func (d *differ) runAll(first, n int) (failed *run, discarded int) {
	var mu sync.Mutex
	var tasks sync.WaitGroup
	for i := range n {
		tasks.Go(func() {
			seq := d.sequence(first + i)
			mu.Lock()
			over := failed != nil
			mu.Unlock()
			if over {
				return
			}
			r := d.execute(seq)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.discarded:
				discarded++
			case r.failure == "":
				d.operations += r.operations
			case failed == nil:
				failed = r
			}
		})
	}
	tasks.Wait()
	if failed != nil {
		failed = d.shorten(failed)
	}
	return failed, discarded
}

// shorten removes operations for as long as the sequence fails without them.
func (d *differ) shorten(failed *run) *run {
	left := maxReruns
	for size := max(1, len(failed.seq.ops)/2); size > 0 && left > 0; {
		var parts []int
		var candidates []sequence // each without one part
		for i := 0; i < len(failed.seq.ops); i += size {
			parts, candidates = append(parts, i), append(candidates, failed.seq.without(size, i))
		}
		left -= len(candidates)
		var needless []int
		var shorter *run
		for i, r := range d.executeAll(candidates) {
			if r.failure != "" {
				needless = append(needless, parts[i])
				shorter = r
			}
		}
		if shorter == nil {
			size /= 2
			continue
		}
		for n := len(needless); n > 1; n /= 2 {
			left--
			if r := d.execute(failed.seq.without(size, needless[:n]...)); r.failure != "" {
				shorter = r
				break
			}
		}
		failed = shorter
	}
	return failed
}

func (d *differ) executeAll(all []sequence) []*run {
	runs := make([]*run, len(all))
	var tasks sync.WaitGroup
	for i, seq := range all {
		tasks.Go(func() { runs[i] = d.execute(seq) })
	}
	tasks.Wait()
	return runs
}
