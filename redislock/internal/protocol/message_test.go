package protocol

import (
	"encoding"
	"testing"
	"time"
)

func TestParseMessage(t *testing.T) {
	for _, tt := range []struct {
		payload string
		want    Message
		ok      bool
	}{
		{"g 0a 7 2000000 1500 lock:a b", Message{Kind: Granted, Owner: "0a", Grant: Grant{Token: 7, Expiry: 2e6, TTL: 1500 * time.Millisecond, Key: "lock:a b"}}, true},
		{"g 0a 7 2000000", Message{Kind: Granted, Owner: "0a"}, false},
		{"h 0a 250", Message{Kind: LeaseChanged, Owner: "0a", Left: 250 * time.Millisecond}, true},
		{"l 0a", Message{Kind: Revoked, Owner: "0a"}, true},
		{"a 0a lock:a b", Message{Kind: Asked, Owner: "0a", Grant: Grant{Key: "lock:a b"}}, true},
		{"x", Message{Kind: Resubscribe}, true},
		{"", Message{}, true},
	} {
		if got, ok := ParseMessage(tt.payload); got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %+v, %v; want %+v, %v", tt.payload, got, ok, tt.want, tt.ok)
		}
	}
}

// A request that was withdrawn is not written, and one that was written is not withdrawn.
func TestWithdraw(t *testing.T) {
	var one, two Sending
	name := func(s *Sending) encoding.BinaryMarshaler {
		return Renew.Command(t.Context(), s, false, nil, nil).Args()[1].(encoding.BinaryMarshaler)
	}
	if !one.Withdraw() || one.Written() {
		t.Error("a request that waits for a connection was not withdrawn")
	}
	if b, err := name(&one).MarshalBinary(); err == nil {
		t.Errorf("withdrawn and written as %q", b)
	}
	for range 2 {
		if b, err := name(&two).MarshalBinary(); string(b) != Renew.SHA || err != nil || !two.Written() {
			t.Errorf("got %q, %v", b, err)
		}
	}
	if two.Withdraw() {
		t.Error("written and withdrawn")
	}
}
