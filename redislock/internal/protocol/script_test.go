package protocol

import (
	"encoding"
	"testing"

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
