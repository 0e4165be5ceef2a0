package pglock

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend/queue"
)

// maxHints is the number of statements that notifications may cause at once.
const maxHints = 16

// receive handles a notification to this process. It is not called concurrently. Notifications are
//
//	granted name owner token expires lease slots [secret]
//	ends name owner left      when the lease ends that the attempt waits for
//	asked name owner
//	removed name owner
//	lost name owner           broken
//
// with times in microseconds, and the name as hex digits. Any role that may connect to the database can send
// notifications, so each only makes an attempt ask the server, except a grant that is proved; see proves.
func (s *service) receive(sender uint32, payload string) {
	received := time.Now()
	f := strings.Split(payload, " ")
	if len(f) < 3 {
		return
	}
	name, err := hex.DecodeString(f[1])
	key, ours := strings.CutPrefix(string(name), s.opt.prefix+":")
	if err != nil || !ours {
		return
	}
	switch owner := f[2]; {
	case f[0] == "granted" && len(f) >= 7:
		s.events.Granted(s.grant(sender, key, f[2:], received))
	case f[0] == "ends" && len(f) == 4:
		s.events.LeaseEnds(owner, micros(number(f[3])))
	case f[0] == "asked":
		s.events.Asked(key, owner)
	case f[0] == "removed":
		s.events.Removed(key, owner)
	case f[0] == "lost" && s.trusting:
		s.events.Lost(owner)
	case f[0] == "lost" && !s.isOther(owner, key):
		s.checkLoss(name, owner)
	}
}

// grant reads a grant: owner, token, expires, lease, slots, and maybe the secret. Without proof its end is not known.
func (s *service) grant(sender uint32, key string, f []string, received time.Time) queue.Grant {
	g := queue.Grant{
		Key: key, Owner: f[0], Token: uint64(max(number(f[1]), 0)), Received: received,
		TTL: micros(number(f[3])), Slots: slotsOf(f[4]),
	}
	secret := ""
	if len(f) > 5 {
		secret = f[5]
	}
	if s.proves(sender, g.Owner, secret) {
		g.Expires = micros(number(f[2]))
	}
	return g
}

// checkLoss reports a loss if the server confirms it. If there is no answer, the next renewal finds out.
func (s *service) checkLoss(name []byte, owner string) {
	s.life.Go(func() {
		s.hints <- struct{}{}
		defer func() { <-s.hints }()
		holds, _, err := query(s.life.Context(), s.server, pgx.RowTo[bool], s.sql.holds, name, owner)
		if err == nil && len(holds) == 1 && !holds[0] {
			s.forget(owner)
			s.events.Lost(owner)
		}
	})
}

// number reads a number that a function wrote.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
