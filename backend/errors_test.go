package backend_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func TestOutcomeUnknown(t *testing.T) {
	network := errors.New("connection reset")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{network, true},
		{context.Canceled, true},
		{backend.ErrUncertain, true},
		{backend.Uncertain(backend.NotExecuted(network)), true},
		{backend.NotExecuted(network), false},
		{fmt.Errorf("dial: %w", backend.NotExecuted(network)), false},
		{backend.NotExecuted(backend.Uncertain(network)), true},
		{&backend.LockedError{}, false},
		{backend.ErrLost, false},
		{fmt.Errorf("name: %w", backend.ErrInvalid), false},
		{backend.ErrClosed, false},
		{errors.ErrUnsupported, false},
	} {
		if got := backend.OutcomeUnknown(c.err); got != c.want {
			t.Errorf("OutcomeUnknown(%v): want %v, got %v", c.err, c.want, got)
		}
	}
	if err := backend.NotExecuted(nil); err != nil {
		t.Errorf("NotExecuted(nil): want nil, got %v", err)
	}
	if err := backend.NotExecuted(network); err.Error() != network.Error() || !errors.Is(err, network) {
		t.Errorf("NotExecuted: want the text and the identity of the cause, got %q", err)
	}
}
