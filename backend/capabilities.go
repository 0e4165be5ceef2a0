package backend

import (
	"fmt"
	"slices"
	"time"
)

// Capabilities declares what a backend guarantees. The conformance suite verifies what is
// declared, and that the client refuses what is not declared.
type Capabilities struct {
	// Name of the driver, as in errors and reports: "redis".
	Name string `json:"name"`
	// Scope is the set of clients among which the lock excludes.
	Scope Scope `json:"scope"`
	// Loss is what ends a grant that is not released.
	Loss Loss `json:"loss"`
	// Order is the order in which waiters are served.
	Order Order `json:"order"`
	// Wake is how a waiter is woken.
	Wake Wake `json:"wake"`
	// Fencing is what the rising of the token survives.
	Fencing Fencing `json:"fencing"`
	// PushesLoss is set if the service notifies a holder at once that its lock was
	// broken. Otherwise the next renewal or check finds it.
	PushesLoss bool `json:"pushes_loss"`

	// Shared is set if the backend grants read locks, see Share.
	Shared bool `json:"shared,omitempty"`
	// Permits is set if the backend grants the permits of semaphores, see Share.
	Permits bool `json:"permits,omitempty"`
	// MinTTL and MaxTTL bound Request.TTL. MinTTL zero is no bound. MaxTTL is at most the
	// package's MaxTTL, and positive if grants expire: MaxTTL unless the service has a bound of its own.
	MinTTL time.Duration `json:"min_ttl_ns"`
	MaxTTL time.Duration `json:"max_ttl_ns,omitempty"`
	// Lateness is for how long after it was sent a request without a reply may still be
	// executed, and acquire the key: package lock repeats Abandon for that long, at least for
	// the TTL. Zero: no request is executed after the TTL. 5 minutes cover
	// what a dead TCP connection still delivers. A longer time costs requests only while Abandon fails.
	Lateness time.Duration `json:"lateness_ns,omitempty"`
	// MaxName is the longest name in bytes. Zero is the package's MaxName.
	MaxName int `json:"max_name,omitempty"`

	// Caveats are sentences about limits that the fields cannot express.
	Caveats []string `json:"caveats,omitempty"`
}

// Caveats of every backend whose grants expire and exclude clients on other machines.
const (
	CaveatClockRates = "The clocks of the service and of its clients must run at rates that differ by less than 0.1 %: chrony needs maxslewrate 500 or less on each of them (its default, 83333, is 8.3 %)."
	CaveatSnapshot   = "Two copies of a virtual machine that are resumed from one snapshot renew the same lease, with the same fencing token."
)

// Scope is the set of clients among which a lock excludes. A wider scope is a greater
// value.
type Scope int

// The scopes.
const (
	ScopeProcess Scope = iota + 1 // goroutines of one process
	ScopeMachine                  // processes of one machine
	ScopeNetwork                  // all clients of the service
)

// Loss is what ends a grant that is not released.
type Loss int

// The kinds of loss.
const (
	LossTTL     Loss = iota + 1 // the service's clock: no renewal for a TTL
	LossSession                 // the service's clock: no message of the session for a TTL
	LossProcess                 // the end of the holding process, and nothing else
)

// Order is the order in which waiters are served.
type Order int

// The orders.
const (
	Unordered Order = iota + 1
	FIFO            // by arrival at the service
)

// Wake is how a waiter is woken.
type Wake int

// The ways of waking.
const (
	WakePoll Wake = iota + 1 // it polls
	WakePush                 // the backend notifies it
)

// Fencing is what the strict rising of tokens survives. A stronger kind is a
// greater value.
type Fencing int

// The kinds of fencing.
const (
	FencingNone     Fencing = iota + 1 // no tokens
	FencingMemory                      // rising as long as the service's memory lives
	FencingRestart                     // also over a restart of the service that loses its data
	FencingFailover                    // also over a failover to a replica that lags
)

// Requirement is a guarantee that a deployment needs; see lock.WithRequire.
type Requirement struct {
	Name string
	Met  func(Capabilities) bool
}

// The requirements.
var (
	RequireFIFO            = Requirement{"order=fifo", func(c Capabilities) bool { return c.Order >= FIFO }}
	RequirePush            = Requirement{"wake=push", func(c Capabilities) bool { return c.Wake >= WakePush }}
	RequireMachineScope    = Requirement{"scope=machine", func(c Capabilities) bool { return c.Scope >= ScopeMachine }}
	RequireNetworkScope    = Requirement{"scope=network", func(c Capabilities) bool { return c.Scope >= ScopeNetwork }}
	RequireFencing         = Requirement{"fencing=memory", func(c Capabilities) bool { return c.Fencing >= FencingMemory }}
	RequireFencingRestart  = Requirement{"fencing=restart", func(c Capabilities) bool { return c.Fencing >= FencingRestart }}
	RequireShared          = Requirement{"shared", func(c Capabilities) bool { return c.Shared }}
	RequirePermits         = Requirement{"permits", func(c Capabilities) bool { return c.Permits }}
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

// value reads what MarshalText has written. An unknown word becomes zero, which is no
// declared value.
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
