package backend

import (
	"fmt"
	"slices"
	"time"
)

// Capabilities declares what a backend guarantees. The conformance suite
// verifies what is declared and that what is not declared is refused.
type Capabilities struct {
	// Name of the driver, as it stands in errors and reports: "redis".
	Name string `json:"name"`
	// Scope is among whom the lock excludes.
	Scope Scope `json:"scope"`
	// Loss says what ends a hold that nobody released.
	Loss Loss `json:"loss"`
	// Order in which waiters are served.
	Order Order `json:"order"`
	// Wake is how a waiter learns of its turn.
	Wake Wake `json:"wake"`
	// Fencing says what the rising of the token survives.
	Fencing Fencing `json:"fencing"`
	// PushesLoss is set if a holder is told at once, unasked, that its lock was
	// broken. Otherwise it learns of it at its next renewal or check.
	PushesLoss bool `json:"pushes_loss"`

	// MinTTL and MaxTTL bound Request.TTL; a zero MaxTTL is no bound.
	MinTTL time.Duration `json:"min_ttl_ns"`
	MaxTTL time.Duration `json:"max_ttl_ns,omitempty"`
	// MaxName is the longest name in bytes, if less than the package's MaxName.
	MaxName int `json:"max_name,omitempty"`

	// WakesPerRelease is how many waiters, at most, one release sets in motion. Zero
	// stands for "any number" (polling).
	WakesPerRelease int `json:"wakes_per_release,omitempty"`
	// HandOffCommands is how many commands, at most, the service executes for a
	// contended cycle of lock and unlock, however many wait. Zero: not bounded, or
	// there is no service.
	HandOffCommands float64 `json:"hand_off_commands,omitempty"`
	// IdleWaiterCommands is how many commands, at most, a waiter sends in one TTL of
	// its holder while nothing happens. Zero: none, or there is no service.
	IdleWaiterCommands float64 `json:"idle_waiter_commands,omitempty"`

	// Caveats says in words what the fields cannot, a sentence each.
	Caveats []string `json:"caveats,omitempty"`
}

// Scope is among whom a lock excludes. A wider scope is a greater value.
type Scope int

// The scopes.
const (
	ScopeProcess Scope = iota + 1 // goroutines of one process
	ScopeMachine                  // processes of one machine
	ScopeNetwork                  // whoever reaches the service
)

// Loss is what ends a hold that nobody released.
type Loss int

// The models of loss.
const (
	LossTTL     Loss = iota + 1 // the service's clock: no renewal for a TTL
	LossSession                 // the service's clock: no sign of life of the session for a TTL
	LossProcess                 // the end of the holding process, and nothing else
)

// Order is the order in which waiters are served.
type Order int

// The orders.
const (
	Unordered Order = iota + 1
	FIFO            // by arrival at the service
)

// Wake is how a waiter learns of its turn.
type Wake int

// The ways of waking.
const (
	WakePoll Wake = iota + 1 // it asks again and again
	WakePush                 // the backend tells it
)

// Fencing is what the strict rising of tokens survives. A stronger kind is a
// greater value.
type Fencing int

// The strengths of fencing.
const (
	FencingNone     Fencing = iota + 1 // no tokens
	FencingMemory                      // rising as long as the service's memory lives
	FencingRestart                     // also over a restart of the service that loses its data
	FencingFailover                    // also over a failover to a replica that lags
)

// Requirement is something that a deployment needs of its backend; see
// lock.WithRequire.
type Requirement struct {
	Name string
	Met  func(Capabilities) bool
}

// The requirements on offer.
var (
	RequireFIFO            = Requirement{"order=fifo", func(c Capabilities) bool { return c.Order >= FIFO }}
	RequirePush            = Requirement{"wake=push", func(c Capabilities) bool { return c.Wake >= WakePush }}
	RequireMachineScope    = Requirement{"scope=machine", func(c Capabilities) bool { return c.Scope >= ScopeMachine }}
	RequireNetworkScope    = Requirement{"scope=network", func(c Capabilities) bool { return c.Scope >= ScopeNetwork }}
	RequireFencing         = Requirement{"fencing=memory", func(c Capabilities) bool { return c.Fencing >= FencingMemory }}
	RequireFencingRestart  = Requirement{"fencing=restart", func(c Capabilities) bool { return c.Fencing >= FencingRestart }}
	RequireFencingFailover = Requirement{"fencing=failover", func(c Capabilities) bool { return c.Fencing >= FencingFailover }}
)

var (
	scopes    = []string{"process", "machine", "network"}
	losses    = []string{"ttl", "session", "process"}
	orders    = []string{"unordered", "fifo"}
	wakes     = []string{"poll", "push"}
	strengths = []string{"none", "memory", "restart", "failover"}
)

func word(words []string, v int) string {
	if v >= 1 && v <= len(words) {
		return words[v-1]
	}
	return fmt.Sprintf("undeclared(%d)", v)
}

func (v Scope) String() string   { return word(scopes, int(v)) }
func (v Loss) String() string    { return word(losses, int(v)) }
func (v Order) String() string   { return word(orders, int(v)) }
func (v Wake) String() string    { return word(wakes, int(v)) }
func (v Fencing) String() string { return word(strengths, int(v)) }

// MarshalText makes the values readable in reports.
func (v Scope) MarshalText() ([]byte, error)   { return []byte(v.String()), nil }
func (v Loss) MarshalText() ([]byte, error)    { return []byte(v.String()), nil }
func (v Order) MarshalText() ([]byte, error)   { return []byte(v.String()), nil }
func (v Wake) MarshalText() ([]byte, error)    { return []byte(v.String()), nil }
func (v Fencing) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// value reads what MarshalText has written; a word it does not know is zero, which
// is nothing that could be declared.
func value[T ~int](v *T, words []string, text []byte) error {
	*v = T(slices.Index(words, string(text)) + 1)
	return nil
}

// UnmarshalText reads what MarshalText has written.
func (v *Scope) UnmarshalText(b []byte) error { return value(v, scopes, b) }

// UnmarshalText reads what MarshalText has written.
func (v *Loss) UnmarshalText(b []byte) error { return value(v, losses, b) }

// UnmarshalText reads what MarshalText has written.
func (v *Order) UnmarshalText(b []byte) error { return value(v, orders, b) }

// UnmarshalText reads what MarshalText has written.
func (v *Wake) UnmarshalText(b []byte) error { return value(v, wakes, b) }

// UnmarshalText reads what MarshalText has written.
func (v *Fencing) UnmarshalText(b []byte) error { return value(v, strengths, b) }
