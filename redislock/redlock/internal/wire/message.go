package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Kinds of messages that a script publishes to a process. Those of another kind need no answer.
const (
	Granted      = "g" // the attempt got the key: token, expiry in us, provisional TTL in ms, key
	LeaseChanged = "h" // the remaining lease of the holder in ms, for the first waiter
	Revoked      = "l" // another client broke the grant of the attempt
)

// Message is a message to a process about the attempt Owner.
type Message struct {
	Kind, Owner string
	Grant       Grant         // of Granted
	Left        time.Duration // of LeaseChanged
}

// Grant is a pushed grant.
type Grant struct {
	Token  uint64
	Expiry int64 // by the server's clock, in microseconds
	TTL    time.Duration
	Key    string // of the lock
}

// ParseMessage parses a message. It returns false if fields are missing.
func ParseMessage(payload string) (m Message, ok bool) {
	var rest string
	m.Kind, rest, _ = strings.Cut(payload, " ")
	m.Owner, rest, _ = strings.Cut(rest, " ")
	switch m.Kind {
	case LeaseChanged:
		m.Left = protocol.OfMillis(protocol.Number(rest))
	case Granted:
		f := strings.SplitN(rest, " ", 4)
		if len(f) != 4 {
			return m, false
		}
		m.Grant = Grant{Expiry: protocol.Number(f[1]), TTL: protocol.OfMillis(protocol.Number(f[2])), Key: f[3]}
		m.Grant.Token, _ = strconv.ParseUint(f[0], 10, 64)
	}
	return m, true
}
