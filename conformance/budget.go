package conformance

import "time"

// Budget is what a deployment may cost its service. The suite measures each figure
// that is not zero; the case of a figure that is zero is reported as not declared. To
// declare that a waiter costs nothing, give a figure far below one command.
// Figures of commands need Harness.ServerCommands, WakesPerRelease needs Harness.Wakes.
type Budget struct {
	// WakesPerRelease is how many waiters, at most, one release wakes.
	WakesPerRelease int `json:"wakes_per_release,omitempty"`
	// HandOffCommands is how many commands, at most, the service executes for a
	// contended cycle of lock and unlock, however many clients wait.
	HandOffCommands float64 `json:"hand_off_commands,omitempty"`
	// IdleHolderCommands is how many commands, at most, the service executes for
	// a holder in one TTL. A holder renews about 3.3 times in a TTL.
	IdleHolderCommands float64 `json:"idle_holder_commands,omitempty"`
	// IdleWaiterCommands is how many commands, at most, the service executes for
	// a waiter in one TTL of its holder, while the holder keeps the lock.
	IdleWaiterCommands float64 `json:"idle_waiter_commands,omitempty"`
	// DeadProcess is for how long, at most, all waiters of one process that was killed or
	// stopped delay the waiters behind them. Zero: each of these waiters delays them.
	DeadProcess time.Duration `json:"dead_process_ns,omitempty"`
}

// needBudget is met if the budget has the figure.
func needBudget(name string, figure func(Budget) float64) need {
	return need{name, func(t *T) (Status, string) {
		if figure(t.h.Budget) == 0 {
			return NotDeclared, "Budget." + name + " is not declared"
		}
		return "", ""
	}}
}
