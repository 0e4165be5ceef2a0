package protocol

import (
	"strconv"
	"strings"
	"time"
)

// Kinds of messages that a script publishes to a process.
const (
	Granted      = "g" // the attempt got the key: token, expiry in us, provisional TTL in ms, key
	SharesGiven  = "s" // attempts got shares: time in us, number; of each: owner, token, provisional TTL in ms, slots or "-"; key
	LeaseChanged = "h" // the remaining lease of the holder in ms, for the first waiter
	Revoked      = "l" // another client broke the grant of the attempt
	Asked        = "a" // the attempt, which is the first waiter, polls to show that it is alive: key
	Resubscribe  = "x" // the process is not subscribed on the server that ran the script
)

// ProvisionalTTL is the longest lease of a pushed grant (PROVISIONAL_TTL in the scripts).
const ProvisionalTTL = 3 * time.Second

// Message is a message to a process about the attempt Owner.
type Message struct {
	Kind, Owner string
	Grant       Grant         // of Granted; of Asked the key
	Left        time.Duration // of LeaseChanged
}

// Grant is a pushed grant.
type Grant struct {
	Token  uint64
	Expiry int64 // by the server's clock, in microseconds
	TTL    time.Duration
	Slots  string // of permits, see ParseSlots
	Key    string // of the lock
}

// ParseMessages parses a message. Of SharesGiven it returns one of kind Granted for each share. It
// returns false if fields are missing.
func ParseMessages(payload string) (all []Message, ok bool) {
	if rest, found := strings.CutPrefix(payload, SharesGiven+" "); found {
		return parseShares(rest)
	}
	m, ok := ParseMessage(payload)
	return []Message{m}, ok
}

// ParseMessage parses a message of another kind than SharesGiven.
func ParseMessage(payload string) (m Message, ok bool) {
	var rest string
	m.Kind, rest, _ = strings.Cut(payload, " ")
	m.Owner, rest, _ = strings.Cut(rest, " ")
	switch m.Kind {
	case LeaseChanged:
		m.Left = OfMillis(Number(rest))
	case Asked:
		m.Grant.Key = rest
	case Granted:
		f := strings.SplitN(rest, " ", 4)
		if len(f) != 4 {
			return m, false
		}
		m.Grant = Grant{Expiry: Number(f[1]), TTL: OfMillis(Number(f[2])), Key: f[3]}
		m.Grant.Token, _ = strconv.ParseUint(f[0], 10, 64)
	}
	return m, true
}

func parseShares(s string) (all []Message, ok bool) {
	now, s, _ := strings.Cut(s, " ")
	number, s, _ := strings.Cut(s, " ")
	for range Number(number) {
		f := strings.SplitN(s, " ", 5)
		if len(f) != 5 {
			return nil, false
		}
		m := Message{Kind: Granted, Owner: f[0], Grant: Grant{TTL: OfMillis(Number(f[2])), Slots: f[3]}}
		m.Grant.Token, _ = strconv.ParseUint(f[1], 10, 64)
		m.Grant.Expiry = Number(now) + m.Grant.TTL.Microseconds()
		all, s = append(all, m), f[4]
	}
	for i := range all {
		all[i].Grant.Key = s
	}
	return all, true
}
