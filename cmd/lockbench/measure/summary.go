package measure

import (
	"math"
	"slices"
	"time"
)

// Summary has the figures of a target in a scenario, over all rounds.
type Summary struct {
	Target   string
	Scenario Scenario

	Raw      time.Duration // median round trip
	P50, P99 time.Duration // of the scenario's own figure, see Figure
	// Ratio and Ratio99 are P50 and P99 in round trips: the median over the rounds of
	// each round's ratio to the round trip measured just before it.
	Ratio, Ratio99 float64
	PerSecond      float64 // acquisitions
	Jain           float64 // fairness: 1 if all workers acquired equally often, 1/n if one acquired always
	Same           float64 // share of acquisitions by the worker that had held before
	PerAcquired    float64 // server operations; NaN if not known
	PerIdle        float64 // server operations per waiter and minute; NaN if not known
	// Processor time of the client and of the server, in µs, and allocations for each acquisition; NaN if not known.
	PerClient, PerServer, PerAllocs float64
	Errors                          int64
	FirstErr                        string
	All                             *Times    // behind P50 and P99
	Rounds                          []float64 // each round's ratio, for comparisons
}

// Figure names the times of P50 and P99.
func (s Scenario) Figure() string {
	switch s.Kind {
	case Contended, Hot:
		return "hand-off"
	case Idle:
		return ""
	}
	return "Lock and Unlock"
}

func (s Scenario) times(m *Measurement) *Times {
	switch s.Kind {
	case Contended, Hot:
		return m.HandOff
	}
	return m.Cycle
}

// Summaries returns the summaries by scenario and target, in the order of the report,
// without the scenarios of growth.
func (r *Report) Summaries() []Summary {
	var out []Summary
	for _, s := range r.Scenarios {
		if s.growth() {
			continue
		}
		for _, t := range r.Targets {
			if runs := r.runsOf(t.Name, s.Name()); len(runs) > 0 {
				out = append(out, summarize(t.Name, s, runs))
			}
		}
	}
	return out
}

func summarize(target string, s Scenario, runs []*Measurement) Summary {
	sum := Summary{Target: target, Scenario: s, All: newTimes(), PerAcquired: math.NaN(), PerIdle: math.NaN()}
	var spent []*Spent
	raw := newTimes()
	perWorker := make([]int64, s.Workers)
	var acquired, same, operations int64
	var counted bool
	var took time.Duration
	var ratios99 []float64
	for _, m := range runs {
		t := s.times(m)
		sum.All.merge(t)
		raw.merge(m.Raw)
		if unit := m.Raw.At(50); unit > 0 && t.Count() > 0 {
			sum.Rounds = append(sum.Rounds, float64(t.At(50))/float64(unit))
			ratios99 = append(ratios99, float64(t.At(99))/float64(unit))
		}
		for w, n := range m.Acquired {
			if w < len(perWorker) {
				perWorker[w] += n
			}
			acquired += n
		}
		same += m.Same
		if m.Spent != nil {
			spent = append(spent, m.Spent)
		}
		took += m.Took
		sum.Errors += m.Errors
		if sum.FirstErr == "" {
			sum.FirstErr = m.FirstErr
		}
		if m.Operations != nil {
			counted = true
			operations += *m.Operations
		}
	}
	sum.Raw, sum.P50, sum.P99 = raw.At(50), sum.All.At(50), sum.All.At(99)
	sum.Ratio, sum.Ratio99 = median(sum.Rounds), median(ratios99)
	sum.PerSecond = float64(acquired) / took.Seconds()
	sum.Jain = jain(perWorker)
	if acquired > 0 {
		sum.Same = float64(same) / float64(acquired)
	}
	sum.perAcquired(spent, float64(acquired))
	switch {
	case counted && s.Kind == Idle:
		sum.PerIdle = float64(operations) / float64(s.Workers) / took.Minutes()
	case counted && acquired > 0:
		sum.PerAcquired = float64(operations) / float64(acquired)
	}
	return sum
}

// perAcquired sets what an acquisition has used.
func (sum *Summary) perAcquired(spent []*Spent, acquired float64) {
	sum.PerClient, sum.PerServer, sum.PerAllocs = math.NaN(), math.NaN(), math.NaN()
	if acquired == 0 || len(spent) == 0 {
		return
	}
	client, server, allocs := 0.0, 0.0, 0.0
	for _, s := range spent {
		client, server, allocs = client+micros(s.Client), server+micros(s.Server), allocs+float64(s.Allocs)
	}
	sum.PerClient, sum.PerServer, sum.PerAllocs = client/acquired, server/acquired, allocs/acquired
}

func micros(d *time.Duration) float64 {
	if d == nil {
		return math.NaN()
	}
	return float64(*d) / float64(time.Microsecond)
}

// jain returns Jain's fairness index.
func jain(counts []int64) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(counts)) * squares)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}
