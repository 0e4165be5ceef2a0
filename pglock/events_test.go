package pglock

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

// recorder has the events of a service.
type recorder struct {
	queue.Events // those that no test expects
	granted      []queue.Grant
	others       []string
}

func (h *recorder) Granted(g queue.Grant)     { h.granted = append(h.granted, g) }
func (h *recorder) Asked(key, owner string)   { h.others = append(h.others, "asked "+key+" "+owner) }
func (h *recorder) Removed(key, owner string) { h.others = append(h.others, "removed "+key+" "+owner) }
func (h *recorder) LeaseEnds(owner string, left time.Duration) {
	h.others = append(h.others, fmt.Sprint("ends ", owner, " ", left))
}

// listening returns a service that sends no statement, and its events.
func listening(t *testing.T) (*service, *recorder) {
	h := &recorder{}
	s := scripted(t, nil).svc
	s.events = h
	return s, h
}

var hexName = hex.EncodeToString([]byte("lock:k"))

// TestSecretProves: the secret of the attempt ahead proves the grant that comes with it, and those of other attempts that
// the same session sends then. It proves none if it may have been public before.
func TestSecretProves(t *testing.T) {
	const real, forger = 7, 8 // sessions
	const secret = "5ec4e7"
	type notification struct {
		sender uint32
		owner  string
		secret string
	}
	for name, c := range map[string]struct {
		before, after []notification // the answer to the request to enter the queue
		proven        []bool
	}{
		"the first":               {nil, []notification{{real, "o", secret}}, []bool{true}},
		"sent again":              {nil, []notification{{real, "o", secret}, {forger, "o", secret}}, []bool{true, false}},
		"of the same release":     {nil, []notification{{real, "o", secret}, {real, "p", secret}}, []bool{true, true}},
		"of another session":      {nil, []notification{{real, "o", secret}, {forger, "p", secret}}, []bool{true, false}},
		"after one of another":    {nil, []notification{{real, "o", secret}, {forger, "x", "?"}, {real, "p", secret}}, []bool{true, false, true}},
		"with another secret":     {nil, []notification{{real, "o", secret}, {real, "p", "?"}}, []bool{true, false}},
		"without a secret":        {nil, []notification{{real, "o", ""}}, []bool{false}},
		"the hash":                {nil, []notification{{real, "o", hashOf(secret)}}, []bool{false}},
		"of an unknown attempt":   {nil, []notification{{real, "x", secret}}, []bool{false}},
		"known before the answer": {[]notification{{real, "o", secret}}, []notification{{forger, "o", secret}}, []bool{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			s, h := listening(t)
			receive := func(all []notification) {
				for _, n := range all {
					text := fmt.Sprintf("granted %s %s 8 3001000 3000000 ", hexName, n.owner)
					if n.secret != "" {
						text += " " + n.secret
					}
					s.receive(n.sender, text)
				}
			}
			s.asks("o", "k")
			s.asks("p", "k")
			receive(c.before)
			s.follows("o", "k", hashOf(secret))
			s.follows("p", "k", hashOf("another"))
			receive(c.after)
			if len(h.granted) != len(c.proven) {
				t.Fatalf("want %d grants, got %d", len(c.proven), len(h.granted))
			}
			for i, g := range h.granted {
				want := time.Duration(0)
				if c.proven[i] {
					want = 3001 * time.Millisecond
				}
				if g.Expires != want || g.Key != "k" || g.Token != 8 || g.TTL != 3*time.Second {
					t.Errorf("grant %d: want one that expires at %v, if it is proven, got %+v", i, want, g)
				}
			}
		})
	}
}

// TestReceive: a notification that no function sends is ignored.
func TestReceive(t *testing.T) {
	s, h := listening(t)
	s.asks("elsewhere", "another")
	for _, text := range []string{
		"", "asked", "asked " + hexName, "asked zz o", "asked 6b o", "ends " + hexName + " o", "granted " + hexName + " o 1 2 3",
		"lost " + hexName + " elsewhere", "other " + hexName + " o",
	} {
		s.receive(1, text)
	}
	if len(h.granted)+len(h.others) > 0 {
		t.Errorf("want no event, got %v %v", h.granted, h.others)
	}
	for _, text := range []string{"asked %s o", "removed %s o", "ends %s o 1500"} {
		s.receive(1, fmt.Sprintf(text, hexName))
	}
	if got := fmt.Sprint(h.others); got != "[asked k o removed k o ends o 1.5ms]" {
		t.Errorf("got %s", got)
	}
}
