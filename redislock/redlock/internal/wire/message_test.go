package wire

import (
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
		{"x", Message{Kind: "x"}, true},
		{"", Message{}, true},
	} {
		if got, ok := ParseMessage(tt.payload); got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %+v, %v; want %+v, %v", tt.payload, got, ok, tt.want, tt.ok)
		}
	}
}
