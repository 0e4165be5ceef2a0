package protocol

import (
	"encoding"
	"testing"
)

// A request that was withdrawn is not written, and one that was written is not withdrawn.
func TestWithdraw(t *testing.T) {
	var one, two Sending
	script := Source("return 1")
	name := func(s *Sending) encoding.BinaryMarshaler {
		return script.Command(t.Context(), s, false, nil, nil).Args()[1].(encoding.BinaryMarshaler)
	}
	if !one.Withdraw() || one.Written() {
		t.Error("a request that waits for a connection was not withdrawn")
	}
	if b, err := name(&one).MarshalBinary(); err == nil {
		t.Errorf("withdrawn and written as %q", b)
	}
	for range 2 {
		if b, err := name(&two).MarshalBinary(); string(b) != script.SHA || err != nil || !two.Written() {
			t.Errorf("got %q, %v", b, err)
		}
	}
	if two.Withdraw() {
		t.Error("written and withdrawn")
	}
}
