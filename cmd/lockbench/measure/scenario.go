package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of a scenario.
type Kind string

// The kinds of scenario.
const (
	Uncontended Kind = "uncontended" // one worker, one lock
	Contended   Kind = "contended"   // many workers of several clients, one lock
	Hot         Kind = "hot"         // many workers of one client, one lock
	Many        Kind = "many"        // many workers of several clients, each on locks of its own
	Idle        Kind = "idle"        // many workers wait for a lock that is held throughout
)

// Kinds are all kinds but those of growth, see Growths.
var Kinds = []Kind{Uncontended, Contended, Hot, Many, Idle}

// Scenario describes a measurement of each target.
type Scenario struct {
	Kind    Kind          `json:"kind"`
	Workers int           `json:"workers"`
	Clients int           `json:"clients"` // the workers are spread over them
	Hold    time.Duration `json:"hold_ns"`
	Think   time.Duration `json:"think_ns"` // pause of a worker after its Unlock
	For     time.Duration `json:"for_ns"`   // length of each measurement

	// The fields below are those of a scenario of growth.
	N      int           `json:"n,omitempty"`         // the number that a cost is measured over
	TTL    time.Duration `json:"ttl_ns,omitempty"`    // of the leases, or the retention of names
	Settle time.Duration `json:"settle_ns,omitempty"` // pause before the measurement
}

// Name returns the name of the scenario, which is unique in a run.
func (s Scenario) Name() string {
	if s.growth() {
		return fmt.Sprintf("%s %d", s.Kind, s.N)
	}
	if s.Workers == 1 {
		return string(s.Kind)
	}
	return fmt.Sprintf("%s %d", s.Kind, s.Workers)
}

// About describes the scenario.
func (s Scenario) About() string {
	var workers string
	if s.growth() {
		return growths[s.Kind].about + s.durations()
	}
	switch s.Kind {
	case Uncontended:
		return "one worker acquires and releases one lock"
	case Idle:
		return fmt.Sprintf("%d workers of %d clients wait for a lock that is held throughout", s.Workers, s.Clients)
	case Many:
		workers = fmt.Sprintf("%d workers of %d clients, each on a lock of its own", s.Workers, s.Clients)
	default:
		workers = fmt.Sprintf("%d workers of %d clients on one lock", s.Workers, s.Clients)
	}
	return fmt.Sprintf("%s, hold %v, pause %v", workers, s.Hold, s.Think)
}

// durations returns the TTL and the pause of a scenario of growth.
func (s Scenario) durations() (text string) {
	switch {
	case s.Kind == Names:
		text = fmt.Sprintf(", retention %v", s.TTL)
	case s.TTL > 0:
		text = fmt.Sprintf(", TTL %v", s.TTL)
	}
	if s.Settle > 0 {
		text += fmt.Sprintf(", measured after a pause of %v", s.Settle)
	}
	return text
}

// New returns a scenario, with up to four clients as its kind requires.
func New(kind Kind, workers int, hold, think, d time.Duration) (Scenario, error) {
	s := Scenario{Kind: kind, Workers: workers, Clients: min(workers, 4), Hold: hold, Think: think, For: d}
	switch kind {
	case Uncontended:
		s.Workers, s.Clients, s.Hold, s.Think = 1, 1, 0, 0
	case Hot:
		s.Clients = 1
	case Contended, Many, Idle:
	default:
		var names []string
		for _, k := range slices.Concat(Kinds, Growths) {
			names = append(names, string(k))
		}
		return s, fmt.Errorf("unknown scenario %q: want one of %s", kind, strings.Join(names, ", "))
	}
	switch {
	case s.Workers < 1 || s.Workers > 10_000:
		return s, fmt.Errorf("%d workers: want 1 to 10000", s.Workers)
	case s.Kind != Uncontended && s.Kind != Many && s.Workers < 2:
		return s, fmt.Errorf("%d workers in scenario %s: want 2 or more, since a single worker never waits", s.Workers, kind)
	case s.Hold < 0 || s.Think < 0:
		return s, fmt.Errorf("hold %v, pause %v: want no negative duration", s.Hold, s.Think)
	case s.For < 10*time.Millisecond:
		return s, fmt.Errorf("measuring for %v: want 10ms or more", s.For)
	}
	return s, nil
}
