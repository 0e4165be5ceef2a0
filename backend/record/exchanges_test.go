package record

import (
	"context"
	"errors"
	"testing"
)

func TestExchanges(t *testing.T) {
	var e Exchanges
	if !e.Begin() {
		t.Fatal("Begin: want true before Close")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := e.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Close during an exchange, with a context that has ended: want its error, got %v", err)
	}
	if e.Begin() {
		t.Error("Begin: want false after Close")
	}
	e.End()
	if err := e.Close(t.Context()); err != nil {
		t.Errorf("Close after the last exchange: want nil, got %v", err)
	}
}
