package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/interlock-go/lock/backend"
)

var (
	errOverdue     = errors.New("no answer in time")
	errUnmarked    = errors.New("no marker")
	errOut         = errors.New("not asked, because other requests have no answer")
	errEnded       = errors.New("not asked: the attempt has ended")
	errUnconfirmed = errors.New("not counted: a release of the attempt had no answer, and may still be executed")
	errSpoiled     = errors.New("the attempt has ended: releases of it had no answer at so many nodes that no quorum can grant the key")
	errClock       = errors.New("no vote: its clock differs from those of the other nodes; synchronize the clocks")
	errQuarantined = errors.New("no vote: the node restarted without its data, or its clock was stepped")
	errOtherSet    = fmt.Errorf("%w set of nodes: the node belongs to another set; give all clients the same hosts, or the same set parameter; "+
		"to change the hosts see Changing the nodes in docs/backends/redlock.md", backend.ErrInvalid)
)

// nodeError is the error of one node. Its text has the address once.
type nodeError struct {
	name string
	error
}

func (e nodeError) Error() string {
	text := strings.TrimPrefix(e.error.Error(), "redis: ")
	return "node " + e.name + ": " + strings.Replace(text, "dial tcp "+e.name+": ", "", 1)
}

func (e nodeError) Unwrap() error { return e.error }

// nodesError has an error for each node that failed.
type nodesError struct {
	text string
	errs []error
}

// failed returns the error of a request to which too few nodes gave that answer, with the error of each of the others.
func failed[T any](s *service, what string, got int, all []reply[T]) error {
	e := &nodesError{text: fmt.Sprintf("%d of %d nodes %s, want %d", got, len(s.nodes), what, s.need)}
	separator := ": "
	for i, r := range all {
		if r.err != nil {
			err := nodeError{s.nodes[i].name, r.err}
			e.errs = append(e.errs, err)
			e.text += separator + err.Error()
			separator = "; "
		}
	}
	return e
}

func (e *nodesError) Error() string { return e.text }

// Is does not match errors that say something about the lock, because an unknown outcome at
// one node is not that of the request, nor those of a context, which is not the caller's.
func (e *nodesError) Is(target error) bool {
	switch target {
	case backend.ErrUncertain, backend.ErrLost, backend.ErrLocked, context.DeadlineExceeded, context.Canceled:
		return false
	}
	return slices.ContainsFunc(e.errs, func(err error) bool { return errors.Is(err, target) })
}
