package lock

import (
	"time"

	"github.com/interlock-go/lock/internal/renewal"
	"github.com/interlock-go/lock/internal/trust"
)

// StopTimer does what a stopped process does: no timer of the lease fires.
func (l *Lease) StopTimer() { l.single.StopTimer() }

// Margin exposes the margin of the trust rule.
func Margin(ttl time.Duration) time.Duration { return trust.Margin(ttl) }

// Bounds of renewals in batches.
const (
	AloneAtMost   = renewal.MaxSingle
	DirectAtMost  = renewal.MaxDirect
	BatchAtMost   = renewal.MaxBatch
	BatchesAtMost = renewal.MaxBatches
)

// MaxQueueWait exposes how long a renewal with d to its deadline waits in the queue.
func MaxQueueWait(d time.Duration) time.Duration { return renewal.MaxQueueWait(d) }

// SetSuspended replaces the time for which the machine was suspended, until restore is called.
func SetSuspended(f func() time.Duration) (restore func()) {
	old := trust.Suspended
	trust.Suspended = func(time.Time) time.Duration { return f() }
	return func() { trust.Suspended = old }
}
