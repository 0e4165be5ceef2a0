package measure

import (
	"fmt"
	"strings"
	"time"
)

// Kind is what the workers of a scenario do.
type Kind string

// The kinds of scenario.
const (
	Uncontended Kind = "uncontended" // one worker, one lock
	Contended   Kind = "contended"   // many workers of several clients, one lock
	Hot         Kind = "hot"         // many workers of one client, one lock
	Many        Kind = "many"        // many workers of several clients, each on locks of its own
	Idle        Kind = "idle"        // many workers wait for a lock that is held throughout
)

// Kinds are all of them.
var Kinds = []Kind{Uncontended, Contended, Hot, Many, Idle}

// Scenario is what is done to each target.
type Scenario struct {
	Kind    Kind          `json:"kind"`
	Workers int           `json:"workers"`
	Clients int           `json:"clients"` // the workers are spread over them
	Hold    time.Duration `json:"hold_ns"`
	Think   time.Duration `json:"think_ns"` // pause of a worker after its Unlock
	For     time.Duration `json:"for_ns"`   // how long it is measured, each time
}

// Name tells a scenario from the others of a run.
func (s Scenario) Name() string {
	if s.Workers == 1 {
		return string(s.Kind)
	}
	return fmt.Sprintf("%s %d", s.Kind, s.Workers)
}

// About says in words what is done.
func (s Scenario) About() string {
	var what string
	switch s.Kind {
	case Uncontended:
		return "one worker takes and frees one lock"
	case Idle:
		return fmt.Sprintf("%d workers of %d clients wait for a lock that is held throughout", s.Workers, s.Clients)
	case Many:
		what = fmt.Sprintf("%d workers of %d clients, each on a lock of its own", s.Workers, s.Clients)
	default:
		what = fmt.Sprintf("%d workers of %d clients on one lock", s.Workers, s.Clients)
	}
	return fmt.Sprintf("%s, hold %v, pause %v", what, s.Hold, s.Think)
}

// New returns a scenario with as many clients as its kind calls for, up to four.
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
		for _, k := range Kinds {
			names = append(names, string(k))
		}
		return s, fmt.Errorf("unknown scenario %q: want one of %s", kind, strings.Join(names, ", "))
	}
	switch {
	case s.Workers < 1 || s.Workers > 10_000:
		return s, fmt.Errorf("%d workers: want 1 to 10000", s.Workers)
	case s.Kind != Uncontended && s.Kind != Many && s.Workers < 2:
		return s, fmt.Errorf("%d workers in scenario %s: want 2 or more, since one alone never waits", s.Workers, kind)
	case s.Hold < 0 || s.Think < 0:
		return s, fmt.Errorf("hold %v, pause %v: want no negative duration", s.Hold, s.Think)
	case s.For < 10*time.Millisecond:
		return s, fmt.Errorf("measuring for %v: want 10ms or more", s.For)
	}
	return s, nil
}
