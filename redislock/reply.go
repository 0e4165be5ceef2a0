package redislock

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Statuses of replies.
const (
	// heldByShares is the reply to a renewal in a slot that migrates: it is sent again with the keys of shares.
	heldByShares = -9

	again      = -6 // the script is sent again, to remove more dead waiters
	wrongType  = -2
	wasRefused = -1
	yes        = 1
	other      = 2 // another owner than the one that BREAK names holds the key
)

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// wrongTypeError returns the error of a reply about a key of another type.
func wrongTypeError(r protocol.Reply) error {
	return fmt.Errorf("%w: redis key %.200q holds a %s of another program: choose another name or prefix",
		backend.ErrInvalid, r.Str(1), r.Str(0))
}

// parseHolder parses the value of a lock, or the record of a share: owner address, token, for a share
// :<weight>/<capacity>:<slots>:<u if pushed>, and metadata.
func parseHolder(text string, left, us int64) backend.Holder {
	h := backend.Holder{Left: max(protocol.OfMillis(left), 0)}
	owner, rest, ok := protocol.ParseOwner(text)
	if !ok {
		h.Owner, h.Foreign = strings.ToValidUTF8(text, "\uFFFD"), true
		return h
	}
	first, metadata, _ := strings.Cut(rest, " ")
	token, share, shared := strings.Cut(first, ":")
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil { // not written by this version
		h.Owner, h.Metadata = owner, rest
		return h
	}
	h.Owner, h.Token, h.Metadata, h.Age = owner, n, metadata, age(int64(min(n, 1<<62)), us)
	if f := strings.Split(share, ":"); shared && len(f) == 3 {
		h.Share, h.Slots = parseShare(f[0]), parseSlots(f[1])
	}
	return h
}

// age returns the age of a token or of a place in the queue. Both are the clock of the server, or later if that was set back.
func age(at, us int64) time.Duration { return micros(max(us-at, 0)) }

func formatShare(s backend.Share) string {
	if s.Exclusive() {
		return ""
	}
	return ":" + strconv.Itoa(s.Weight) + "/" + strconv.Itoa(s.Capacity)
}

func parseShare(s string) backend.Share {
	w, c, _ := strings.Cut(s, "/")
	return backend.Share{Weight: int(protocol.Number(w)), Capacity: int(protocol.Number(c))}
}

// info returns what a reply of INSPECT says about the lock of that name.
func info(r protocol.Reply, name string) backend.Info {
	in := backend.Info{Name: name}
	var holders []backend.Holder
	rest := int(2 * max(r.Status, 0))
	for n := 0; n < rest; n += 2 {
		holders = append(holders, parseHolder(r.Str(n), r.Num(n+1), r.US))
	}
	slices.SortFunc(holders, func(a, b backend.Holder) int { return cmp.Compare(a.Token, b.Token) })
	if len(holders) > 0 {
		in.Holder = &holders[0]
		in.Others = holders[1:]
	}
	for n := rest; n+1 < len(r.Rest); n += 2 {
		owner, text, _ := protocol.ParseOwner(r.Str(n))
		ttl, metadata, _ := strings.Cut(text, " ")
		_, share, _ := strings.Cut(ttl, ":")
		in.Waiters = append(in.Waiters, backend.Contender{
			Owner: owner, Metadata: metadata, Share: parseShare(share), Age: age(r.Num(n+1), r.US),
		})
	}
	return in
}

// receive reports the events of a message to this process that arrived at listener l. It does not block.
func (b *service) receive(l *listener, payload string) {
	received := time.Now()
	if b.srv.Context().Err() != nil {
		return
	}
	kind, rest, _ := strings.Cut(payload, " ")
	first, second, _ := strings.Cut(rest, " ")
	switch kind {
	case "x": // this process is not subscribed on the server that ran the script
		b.subs.lost(l, errNotDelivered)
	case "g":
		for _, g := range parseGrants(first, second) {
			g.Key, _ = protocol.LockName(b.proc.Prefix, g.Key)
			if g.Received = received; b.opt.replicas > 0 {
				g.Expires = 0 // the attempt asks, and its request waits for the replicas
			}
			b.events.Granted(g)
		}
	case "h":
		b.events.LeaseEnds(first, protocol.OfMillis(protocol.Number(second)))
	case "a":
		if key, ok := protocol.LockName(b.proc.Prefix, second); ok {
			b.events.Asked(key, first)
		}
	case "r":
		if key, ok := protocol.LockName(b.proc.Prefix, second); ok {
			b.events.Removed(key, first)
		}
	case "l":
		b.events.Lost(first)
	case "f":
		if b.quorum != nil {
			b.quorum.released(first, second)
		}
	}
}

// parseGrants parses a message of grants: the clock in us, and <number> <owner> <token> <lease in ms> <slots or ->... <key>.
// It returns nil if fields are missing.
func parseGrants(us, text string) []queue.Grant {
	number, text, _ := strings.Cut(text, " ")
	var all []queue.Grant
	for range protocol.Number(number) {
		f := strings.SplitN(text, " ", 5)
		if len(f) != 5 {
			return nil
		}
		g := queue.Grant{Owner: f[0], TTL: protocol.OfMillis(protocol.Number(f[2])), Slots: parseSlots(f[3])}
		g.Token, _ = strconv.ParseUint(f[1], 10, 64)
		g.Expires = micros(protocol.Number(us)) + g.TTL
		all, text = append(all, g), f[4]
	}
	for i := range all {
		all[i].Key = text
	}
	return all
}
