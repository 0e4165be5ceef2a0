package conformance

import (
	"context"
	"os/exec"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Harness connects the suite with one deployment of a backend. Name and Open are
// required; every other field is a hook that may be nil, and the cases that need
// it are then reported as not run. New fields may be added, so name the fields
// when you write a Harness.
type Harness struct {
	// Name of the deployment in reports: "redis 7.4".
	Name string

	// Open returns an independent client of the service: its own connections, its own
	// session, the same namespace of keys. The suite closes it.
	Open func(ctx context.Context) (backend.Backend, error)

	// OpenPrefix is Open for an application with a namespace of its own.
	OpenPrefix func(ctx context.Context, prefix string) (backend.Backend, error)

	// OpenFaulty is Open for a client whose connections, and no others, run through
	// a link that the suite disturbs. Package conformancelink has one for TCP.
	OpenFaulty func(ctx context.Context) (backend.Backend, Link, error)

	// Worker returns the command, not yet started, of a process that calls WorkerMain
	// and opens the same service; see [Self]. It is what gets killed and stopped.
	Worker func() *exec.Cmd

	// ClockWorker is Worker for a process whose wall clock is off by that much. libfaketime
	// does not change the clock of a Go program; package conformanceclock does.
	ClockWorker func(off time.Duration) *exec.Cmd

	// StopServer hangs the service (SIGSTOP) until ResumeServer.
	StopServer   func(ctx context.Context) error
	ResumeServer func(ctx context.Context) error

	// RestartServer ends the service at once (SIGKILL) and starts it again at the same
	// address; it returns when the service answers. It may delete the data of the service. For a
	// driver that declares FencingRestart, run the suite with the data kept, and once more with
	// the data deleted and Only("restart").
	RestartServer func(ctx context.Context) error
	// RestartKeepsLocks is set if a lock that is held survives RestartServer.
	RestartKeepsLocks bool

	// Failover takes away the node that answers, with what it has acknowledged last and not copied, and returns when
	// another one answers.
	Failover func(ctx context.Context) error

	// ServerCommands returns how many commands of clients the service has executed so
	// far. The suite subtracts what reading the counter costs.
	ServerCommands func(ctx context.Context) (int64, error)

	// Budget is what the deployment may cost the service. Leave the figures zero that grow with the
	// number of processes: of a driver that polls, WakesPerRelease and HandOffCommands.
	Budget Budget

	// Wakes returns how many times, so far, a waiter has been woken.
	Wakes func(ctx context.Context) (int64, error)

	// Leftovers names what the service still stores for a key, except for what is
	// meant to stay (a fence counter, the free record of package record).
	Leftovers func(ctx context.Context, key string) ([]string, error)

	// ForeignHolder takes a key as another program would that knows nothing of this
	// library, and returns how to free it.
	ForeignHolder func(ctx context.Context, key string, ttl time.Duration) (free func(context.Context) error, err error)

	// DestroyState removes the state that makes a key held, as an operator or an
	// eviction would. KeepsFence is set if the fence counter survives that.
	DestroyState func(ctx context.Context, key string) error
	KeepsFence   bool

	// ExpireSession ends the session of a backend that Open returned, at the service.
	ExpireSession func(ctx context.Context, b backend.Backend) error

	// KeyOf returns what the service stores a name under, without any connection. It
	// lets the suite compare a hundred thousand names.
	KeyOf func(name string) string

	// GuardedWrite writes to the service's own data if token is not stale, and fails
	// otherwise. Each key guards data of its own. Tokens have 64 bits.
	GuardedWrite func(ctx context.Context, key string, token uint64) error

	// OwnGoroutines are parts of stack traces by which goroutines of the harness are
	// known, such as those of a server that it runs in this process. They do not count
	// when the suite looks for goroutines that a driver left behind.
	OwnGoroutines []string

	// Slack is added to a declared bound before a lateness is a failure, because
	// machines are busy; 10 s if zero. It is never granted to exclusion.
	Slack time.Duration
}

// Link is the network between one client and the service.
type Link interface {
	// Cut closes all connections and refuses new ones, until Heal.
	Cut()
	// Blackhole lets nothing through in either direction, with connections open.
	Blackhole()
	// BlackholeReplies lets requests reach the service and drops what it answers.
	BlackholeReplies()
	// Delay holds up each chunk of bytes, in both directions. Zero ends that.
	Delay(d time.Duration)
	// Heal undoes all of the above. Connections that lost bytes are closed, since
	// what follows on them would not be understood.
	Heal()
}

// ReplyCutter is a Link that can close all connections when n more chunks of
// replies would have been delivered, in their place: the requests were executed.
// Connections made after that work.
type ReplyCutter interface {
	CutAfterReplies(n int)
}

// ReplySilencer is a Link that can let n more chunks of replies through and then be as after
// BlackholeReplies: a driver that reads before it writes gets the answer to the read only.
type ReplySilencer interface {
	SilenceAfterReplies(n int)
}

// ConnectionSilencer is a Link that can drop all bytes, in both directions, of the connections that are open now, without
// closing them: a virtual address failed over, or a router forgot them. Connections made after that work.
type ConnectionSilencer interface {
	SilenceOpen()
}

// slack returns the tolerance for lateness.
func (h *Harness) slack() time.Duration {
	if h.Slack > 0 {
		return h.Slack
	}
	return 10 * time.Second
}
