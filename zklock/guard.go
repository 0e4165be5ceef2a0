package zklock

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// Guard returns an operation for a Multi of the caller's own, which makes it fail
// with [zk.ErrNoNode] when the lease, a *lock.Lease of this backend, does not hold
// its lock any more: the other operations of the Multi are then not executed. That
// is checked by the service, in the same step, and needs no token at the
// resource. The Multi may use any connection to the same service.
//
// It returns ErrLost if the lease has ended already. With lock.WithLocalHandOff pass the
// lease's BackendHold; what is guarded is the grant then, which the same client may have
// passed on.
func (b *Backend) Guard(lease interface{ Owner() string }) (*zk.CheckVersionRequest, error) {
	a := b.attempt(lease.Owner())
	if a == nil {
		return nil, fmt.Errorf("%w: the lease has ended, or is of another backend", backend.ErrLost)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.guarded == "" {
		return nil, errors.New("zookeeper: the lease does not hold its lock yet")
	}
	return &zk.CheckVersionRequest{Path: a.guarded, Version: -1}, nil
}
