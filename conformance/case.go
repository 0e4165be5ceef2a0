package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// Case is one behaviour that the suite checks.
type Case struct {
	// ID never changes: section, number in the list of behaviours, name.
	ID string
	// Title says what a pass shows.
	Title string
	// Clause is the sentence of the contract that a failure breaks.
	Clause string
	// Needs names the capabilities and hooks without which the case does not run.
	Needs []string

	needs []need
	alone bool // measures or disturbs the whole process or service
	long  bool // runs in the long tier only
	run   func(t *T)
}

// Cases returns all cases in the order of their ids' numbers.
func Cases() []Case {
	var all []Case
	for _, section := range [][]Case{
		capabilityCases, exclusionCases, waitingCases, queueCases, deadWaiterCases, orphanCases, cancellationCases, releaseCases,
		leaseCases, lossCases, fencingCases, ambiguityCases, nameCases, lifecycleCases, combinatorCases, overlapCases, sharedCases, manyReadersCases, downgradeCases, permitCases, capacityCases, sharedEndCases, sharedDeadCases, endedCases,
	} {
		all = append(all, section...)
	}
	for i := range all {
		for _, n := range all[i].needs {
			all[i].Needs = append(all[i].Needs, n.name)
		}
		if all[i].long {
			all[i].Needs = append(all[i].Needs, "option Full")
		}
	}
	slices.SortStableFunc(all, func(a, b Case) int { return cmp.Compare(number(a.ID), number(b.ID)) })
	return all
}

func number(id string) (n int) {
	for i := range id {
		if id[i] == '/' {
			_, _ = fmt.Sscanf(id[i+1:], "%d", &n)
		}
	}
	return n
}

// need is a condition of a case.
type need struct {
	name string
	// check returns the empty status if the need is met, else why not. It may itself
	// fail: an operation that is not declared must be refused.
	check func(t *T) (Status, string)
}

func hook(name string, has func(h *Harness) bool) need {
	return need{"hook " + name, func(t *T) (Status, string) {
		if has(t.h) {
			return "", ""
		}
		return NotRun, "the harness has no " + name
	}}
}

var (
	needOpenPrefix     = hook("OpenPrefix", func(h *Harness) bool { return h.OpenPrefix != nil })
	needStopServer     = service("StopServer", func(h *Harness) bool { return h.StopServer != nil && h.ResumeServer != nil })
	needRestart        = service("RestartServer", func(h *Harness) bool { return h.RestartServer != nil })
	needFailover       = service("Failover", func(h *Harness) bool { return h.Failover != nil })
	needServerCommands = service("ServerCommands", func(h *Harness) bool { return h.ServerCommands != nil })
	needForeignHolder  = hook("ForeignHolder", func(h *Harness) bool { return h.ForeignHolder != nil })
	needDestroyState   = hook("DestroyState", func(h *Harness) bool { return h.DestroyState != nil })
	needExpireSession  = need{"hook ExpireSession", func(t *T) (Status, string) {
		if t.caps.Loss != backend.LossSession {
			return NotDeclared, "loss " + t.caps.Loss.String() + ": there is no session to end"
		}
		return hook("ExpireSession", func(h *Harness) bool { return h.ExpireSession != nil }).check(t)
	}}
	needKeyOf        = hook("KeyOf", func(h *Harness) bool { return h.KeyOf != nil })
	needGuardedWrite = hook("GuardedWrite", func(h *Harness) bool { return h.GuardedWrite != nil })
)

// service is a hook for a service apart from its clients, which alone can be
// stopped, restarted, cut off or asked for what it has executed.
func service(name string, has func(h *Harness) bool) need {
	n := hook(name, has)
	return need{n.name, func(t *T) (Status, string) {
		if t.caps.Scope < backend.ScopeNetwork && !has(t.h) {
			return NotDeclared, "scope " + t.caps.Scope.String() + ": there is no service apart from its clients"
		}
		return n.check(t)
	}}
}

// needLink asks for a client whose network can be disturbed.
var needLink = service("OpenFaulty", func(h *Harness) bool { return h.OpenFaulty != nil })

// needWorker is met if the lock excludes between processes and one can be started.
var needWorker = need{"hook Worker", func(t *T) (Status, string) {
	if t.caps.Scope < backend.ScopeMachine {
		return NotDeclared, "scope " + t.caps.Scope.String() + ": other processes are not excluded"
	}
	if t.h.Worker == nil {
		return NotRun, "the harness has no Worker"
	}
	return "", ""
}}

// declared is met by what the requirement asks of the capabilities. A driver that
// does not declare it must be refused where a deployment requires it.
func declared(r backend.Requirement) need {
	return need{r.Name, func(t *T) (Status, string) {
		if r.Met(t.caps) {
			return "", ""
		}
		b := t.open()
		if c, err := lock.New(b, append(slices.Clone(t.o.clients), lock.WithLogger(nil), lock.WithRequire(r))...); !errors.Is(err, errors.ErrUnsupported) {
			if err == nil {
				t.later(func(ctx context.Context) { _ = c.Close(ctx) })
			}
			return Failed, fmt.Sprintf("%s is not declared; want New with that requirement to be refused with errors.ErrUnsupported, got %v", r.Name, err)
		}
		return NotDeclared, "the driver does not declare " + r.Name + "; refused where required"
	}}
}

// needExpiry is met by a service that ends leases by its clock.
var needExpiry = need{"loss by TTL or session", func(t *T) (Status, string) {
	if t.expires() {
		return "", ""
	}
	return NotDeclared, "loss " + t.caps.Loss.String() + ": nothing expires while the process lives"
}}

// needTTL is met by a service that ends each lease that is not renewed, whatever
// its client's session does.
var needTTL = need{"loss by TTL", func(t *T) (Status, string) {
	if t.caps.Loss == backend.LossTTL {
		return "", ""
	}
	return NotDeclared, "loss " + t.caps.Loss.String() + ": a lease does not end for want of renewal alone"
}}

// needQueue is met by a backend in which waiters wait, rather than the core.
var needQueue = need{"backend.Waiter", func(t *T) (Status, string) {
	if _, ok := t.probe.(backend.Waiter); ok {
		return "", ""
	}
	return NotDeclared, "the driver has no queue; the core polls for it"
}}

// operation is met by an optional interface. Where it is missing the client must
// say so by errors.ErrUnsupported.
func operation(name string, has func(b backend.Backend) bool, call func(ctx context.Context, c *lock.Client, key string) error) need {
	return need{"backend." + name, func(t *T) (Status, string) {
		c := t.client()
		ctx, cancel := context.WithTimeout(t.ctx, t.h.slack()+5*time.Second)
		defer cancel()
		err := call(ctx, c, t.key("unsupported"))
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return NotDeclared, "the driver has no " + name + "; refused with errors.ErrUnsupported"
		case has(t.probe):
			return "", ""
		}
		return Failed, fmt.Sprintf("the driver has no %s; want it refused with errors.ErrUnsupported, got %v", name, err)
	}}
}

var (
	needInspect = operation("Inspector",
		func(b backend.Backend) bool { _, ok := b.(backend.Inspector); return ok },
		func(ctx context.Context, c *lock.Client, key string) error {
			_, err := c.Inspect(ctx, key)
			return err
		})
	needChanges = operation("ChangeWatcher",
		func(b backend.Backend) bool { _, ok := b.(backend.ChangeWatcher); return ok },
		func(ctx context.Context, c *lock.Client, key string) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return c.WatchChanges(ctx, key, cancel)
		})
	needList = operation("Lister",
		func(b backend.Backend) bool { _, ok := b.(backend.Lister); return ok },
		func(ctx context.Context, c *lock.Client, _ string) error {
			for _, err := range c.List(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		})
	needBreak = operation("Breaker",
		func(b backend.Backend) bool { _, ok := b.(backend.Breaker); return ok },
		func(ctx context.Context, c *lock.Client, key string) error {
			_, err := c.Break(ctx, key)
			return err
		})
	needPing = operation("Pinger",
		func(b backend.Backend) bool { _, ok := b.(backend.Pinger); return ok },
		func(ctx context.Context, c *lock.Client, _ string) error { return c.Ping(ctx) })
)
