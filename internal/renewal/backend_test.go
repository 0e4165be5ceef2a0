package renewal_test

import (
	"context"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/renewal"
	"github.com/interlock-go/lock/internal/task"
	"github.com/interlock-go/lock/memlock"
)

type batching struct{ *memlock.Backend }

func (batching) RenewBatch(_ context.Context, renewals []backend.Renewal) []error {
	return make([]error, len(renewals))
}

// A wrapper keeps the optional interfaces of what it wraps, and adds none.
func TestWrapKeepsOptionalInterfaces(t *testing.T) {
	plain := memlock.New()
	if b := renewal.Wrap(plain, "mem", task.New()); b != backend.Backend(plain) {
		t.Errorf("a backend without batches was wrapped: %T", b)
	}
	b := renewal.Wrap(batching{memlock.New()}, "mem", task.New())
	w, ok := b.(backend.Waiter)
	if !ok {
		t.Fatal("the wrapper of a Waiter is none: waiting would go past it")
	}
	if _, ok := backend.As[backend.Inspector](b); !ok {
		t.Error("backend.As finds no Inspector")
	}
	g, err := w.Acquire(t.Context(), backend.Request{Key: "k", Owner: "o", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := backend.As[backend.Keeper](g); !ok {
		t.Error("backend.As finds no Keeper")
	}
	noQueue := renewal.Wrap(struct {
		backend.Backend
		backend.BatchRenewer
	}{memlock.New(), batching{}}, "mem", task.New())
	if _, ok := backend.As[backend.Waiter](noQueue); ok {
		t.Error("the wrapper of a backend without a queue is a Waiter")
	}
}
