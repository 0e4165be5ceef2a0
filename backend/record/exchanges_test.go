package record

import (
	"context"
	"errors"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func TestExchanges(t *testing.T) {
	var e Exchanges
	ended, end := context.WithCancel(t.Context())
	end()
	if err := e.Begin(ended); !errors.Is(err, context.Canceled) || backend.OutcomeUnknown(err) {
		t.Errorf("Begin with a context that has ended: want its error, and that nothing was executed, got %v", err)
	}
	if err := e.Begin(t.Context()); err != nil {
		t.Fatalf("Begin before Close: want nil, got %v", err)
	}
	if err := e.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close during an exchange, with a context that has ended: want its error, got %v", err)
	}
	if err := e.Begin(t.Context()); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Begin after Close: want ErrClosed, got %v", err)
	}
	e.End()
	if err := e.Close(t.Context()); err != nil {
		t.Errorf("Close after the last exchange: want nil, got %v", err)
	}
}
