package protocol

import (
	"context"
	"encoding"
	"errors"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// The name of a script is encoded when the request is written, also if it is written again.
func TestWritten(t *testing.T) {
	var sending call.Sending
	script := Source("return 1")
	name := script.Command(t.Context(), &sending, false, nil, nil).Args()[1].(encoding.BinaryMarshaler)
	if sending.Written() {
		t.Error("written before it was encoded")
	}
	for range 2 {
		if b, err := name.MarshalBinary(); string(b) != script.SHA || err != nil || !sending.Written() {
			t.Errorf("got %q, %v", b, err)
		}
	}
}

// A request that has been withdrawn before it was encoded is not written.
func TestWithdrawn(t *testing.T) {
	life := call.NewLife()
	ctx, cancel := context.WithCancel(t.Context())
	ended, encoded := make(chan struct{}), make(chan struct{})
	_, err := call.Detached(ctx, life, func(ctx context.Context, sending *call.Sending) (int, error) {
		name := Source("return 1").Command(ctx, sending, false, nil, nil).Args()[1].(encoding.BinaryMarshaler)
		cancel()
		<-ended
		b, err := name.MarshalBinary()
		if err == nil {
			t.Errorf("a request whose context has ended: want it not encoded, got %q", b)
		}
		close(encoded)
		return 0, err
	})
	if backend.OutcomeUnknown(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("a request that was not written: want the error of its context and a known outcome, got %v", err)
	}
	close(ended)
	<-encoded
	if err := life.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
